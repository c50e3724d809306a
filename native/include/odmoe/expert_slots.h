// A worker's few places for experts. All memory is taken from the device when the pool is made, so that a worker's memory is a
// fact: slots for the weights; staging, entries for kept parts and one tile of activations that all slots share.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "odmoe/device.h"
#include "odmoe/expert.h"
#include "odmoe/expert_load.h"

namespace odmoe {

class ExpertLoader;
class HostChunkTable;

// What has come of reading an expert into host memory.
struct HoldOutcome {
  bool held = false;        // false: it was cancelled
  uint64_t bytes = 0;       // of host memory that it takes
  uint64_t read_bytes = 0;  // from storage
};

// What has come of packing the expert in a slot. unfit: fixed4 cannot hold it, or only in more bytes.
enum class PackResult : uint8_t { packed, given_up, unfit };

struct ExpertSlotBytes {
  uint64_t slot_bytes = 0;
  uint64_t shared_bytes = 0;
  uint64_t exponent_entry_bytes = 0;
  uint64_t sign_mantissa_entry_bytes = 0;
};

ExpertSlotBytes expert_slot_bytes(const Backend& backend, const ExpertShape& shape, int max_rows, const LoaderOptions& loader);

// A slot is loaded or executed, never both: a call of either kind is announced when it is asked for, and while it lasts a call
// of the other kind throws INTERNAL.
class ExpertSlots : public LiveCount<ExpertSlots> {
 public:
  // Throws DEVICE_OUT_OF_MEMORY; INTERNAL for the format fixed4, whose rows are written in order.
  ExpertSlots(std::shared_ptr<Device> device, const ExpertShape& shape, int count, int max_rows, const LoaderOptions& loader);
  // Not on a thread that a listener is called on. Cancels what is being loaded and waits for it.
  ~ExpertSlots();

  int count() const { return static_cast<int>(slots_.size()); }
  // LoaderOptions::experts.
  int64_t experts() const { return experts_; }
  uint64_t slot_bytes() const { return slot_bytes_; }
  const std::shared_ptr<Device>& device() const { return device_; }

  // From being asked for until done. Load: what was in the slot is gone. Execute: throws INTERNAL for an empty slot.
  class Call {
   public:
    enum class Kind : uint8_t { load, execute };
    Call(std::shared_ptr<ExpertSlots> slots, int slot, Kind kind);
    ~Call();
    Call(Call&&) noexcept = default;
    Call& operator=(Call&&) = delete;
    int slot() const { return slot_; }

   private:
    std::shared_ptr<ExpertSlots> slots_;
    int slot_;
    Kind kind_;
  };

  // Within this call, which lasts until the listener has been told. Waits for neither storage nor device. Throws what can be told before
  // anything is read: MODEL_CORRUPT or PACK_CORRUPT for wrong sizes, INTERNAL for an entry that cannot be used. The listener is told of the
  // rest: STORAGE_FAILED, PACK_CORRUPT, MODEL_CORRUPT, DEVICE_OUT_OF_MEMORY, DEVICE_LOST. The slot is empty unless it is told that the
  // expert is loaded.
  void load(const Call& call, const ExpertSource& source, const LoadRequest& request, LoadListener& listener);
  // Of the slot's load, where one is under way; from any thread. Cancel settles it at once or after the operations being done for it.
  void cancel(int slot);
  void prioritize(int slot);
  void reorder(int slot, const std::optional<ExpertOrder>& order);
  StorageReads storage_reads() const;
  // The slot's memory goes back to the device, and is taken again: `call` is of a load, so that nothing else uses the slot. Without memory it
  // loads nothing (INTERNAL). take throws DEVICE_OUT_OF_MEMORY.
  void let_go(const Call& call);
  void take(const Call& call);
  bool has_memory(int slot) { return slot_at(slot).has_memory; }
  // Reads the expert's stored bytes into host memory and checks them; loads whose request names the number then take them from there.
  // Returns when it is done, which may be long: nothing is read while an urgent load is under way. One call at a time. Throws
  // DEVICE_OUT_OF_MEMORY, STORAGE_FAILED, PACK_CORRUPT, MODEL_CORRUPT; nothing is then held of the expert.
  // `ticket`: from new_hold(), taken when the call is asked for.
  HoldOutcome hold(uint64_t ticket, int64_t number, const ExpertSource& source);
  uint64_t new_hold();
  // Every hold that has a ticket by now ends without holding anything, unless it is done already. From any thread.
  void cancel_hold();
  // Loads that read it go on to their end.
  void drop_held(int64_t number);
  uint64_t held_bytes() const;

  // Turns the BF16 expert in the slot into fixed4, in memory beside the slots, which is then the slot's; the slot's is the next one's to be
  // packed. Executes may go on meanwhile: they read what they read before. Given up where the slot executes at the end, is loaded or gives
  // its memory back, which waits for a piece of some 16,384 values at most. Only with LoaderOptions::packs. One call at a time. `ticket`:
  // from new_pack(), taken when the call is asked for.
  PackResult pack(uint64_t ticket, int slot);
  uint64_t new_pack();
  // Every pack that has a ticket by now is given up, unless it is done already. From any thread.
  void cancel_pack();

  // On the executor, or in its place (JobQueue::run_here), within this call. hidden and output: rows x hidden_size floats. Returns milliseconds.
  double execute(const Call& call, int rows, std::span<const uint8_t> hidden, std::span<uint8_t> output);

 private:
  struct Slot : LoadListener {
    void settled(const LoadOutcome& told, std::exception_ptr error) noexcept override;
    // False, with the error, where they could not be copied.
    bool copy_biases(std::exception_ptr& error) noexcept;

    std::mutex* mutex = nullptr;
    LoadListener* listener = nullptr;
    ExpertMemory* memory = nullptr;
    Backend* backend = nullptr;
    int index = 0;
    ExpertMatrices matrices;    // in the memory, where it has put the slot's expert
    std::vector<float> biases;  // of the expert that is loaded, until they are on the device
    bool loaded = false;
    bool has_memory = true;  // of the event loop alone, as loads begin there
    bool loading = false;
    int executing = 0;
    uint64_t loads = 0;  // calls of that kind so far
  };

  // Which expert is being packed: that of the slot's last load.
  struct Packing {
    uint64_t ticket = 0;
    int slot = -1;
    uint64_t loads = 0;
  };
  bool is_packable(const Packing& packing);
  PackResult pack_pieces(const Packing& packing, Matrix (&to)[2], const Matrix (&from)[2]);
  bool adopt(const Packing& packing, const Matrix (&to)[2]);

  Slot& slot_at(int slot);
  void set_pages(Slot& slot, const ExpertPages& pages);

  std::shared_ptr<Device> device_;
  ExpertShape shape_;
  int max_rows_;
  int64_t experts_;
  uint64_t slot_bytes_;
  bool packs_;
  ExpertActivations activations_;
  std::unique_ptr<ExpertMemory> memory_;
  std::mutex mutex_;  // guards the slots' flags, and what is said of packing
  // Held while a piece is packed, and taken before mutex_. Who is to write to a slot says so under mutex_, and then waits for this one.
  std::mutex piece_mutex_;
  DeviceMemory pack_scratch_;
  uint64_t pack_tickets_ = 0;
  uint64_t cancelled_packs_ = 0;  // tickets up to this one
  std::vector<Slot> slots_;
  std::unique_ptr<HostChunkTable> held_;
  std::unique_ptr<ExpertLoader> loader_;  // last, because it writes to the slots until it is gone
};

}  // namespace odmoe
