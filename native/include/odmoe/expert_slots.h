// A worker's pool of slots for experts. All memory is taken from the device when the pool is made, so that a worker's memory is
// known from the start: slots for the weights, staging, entries for cached parts, and one tile of activations that all slots share.
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

// Result of reading an expert into host memory.
struct HoldOutcome {
  bool held = false;        // false: it was cancelled
  uint64_t bytes = 0;       // host memory that the expert takes
  uint64_t read_bytes = 0;  // from storage
};

// Result of packing the expert in a slot. unfit: fixed4 cannot hold it, or would take more bytes.
enum class PackResult : uint8_t { packed, given_up, unfit };

struct ExpertSlotBytes {
  uint64_t slot_bytes = 0;   // of a sliced expert: without its lower slices
  uint64_t lower_bytes = 0;  // for a slot's lower slices
  uint64_t shared_bytes = 0;
  uint64_t exponent_entry_bytes = 0;
  uint64_t sign_mantissa_entry_bytes = 0;
};

ExpertSlotBytes expert_slot_bytes(const Backend& backend, const ExpertShape& shape, int max_rows, const LoaderOptions& loader);

// A slot is loaded or executed, never both: each call is registered when it is made, and until it ends a call of the other kind
// throws INTERNAL. A slot for sliced experts is usable with its upper slices alone. Its lower slices have memory of their own, which it
// has not at first; they are loaded, and their memory is moved, while executes that read the upper slices alone go on.
class ExpertSlots : public LiveCount<ExpertSlots> {
 public:
  // Throws DEVICE_OUT_OF_MEMORY; INTERNAL for the format fixed4, because its rows must be written in order.
  ExpertSlots(std::shared_ptr<Device> device, const ExpertShape& shape, int count, int max_rows, const LoaderOptions& loader);
  // Cancels running loads and waits for them. Not to be called on a thread that calls listeners.
  ~ExpertSlots();

  int count() const { return static_cast<int>(slots_.size()); }
  // LoaderOptions::experts.
  int64_t experts() const { return experts_; }
  uint64_t slot_bytes() const { return slot_bytes_; }
  const std::shared_ptr<Device>& device() const { return device_; }

  // A call, from its start until it is done. Load: the old contents of the slot are lost. Throws INTERNAL: execute for a slot that
  // does not hold all of an expert, execute_upper for an empty slot, load_lower for a slot that does not hold upper slices alone.
  class Call {
   public:
    enum class Kind : uint8_t { load, load_lower, move_lower, execute, execute_upper };
    Call(std::shared_ptr<ExpertSlots> slots, int slot, Kind kind);
    ~Call();
    Call(Call&&) noexcept = default;
    Call& operator=(Call&&) = delete;
    int slot() const { return slot_; }
    Kind kind() const { return kind_; }

   private:
    std::shared_ptr<ExpertSlots> slots_;
    int slot_;
    Kind kind_;
  };

  // The kind of a load's call, by the parts that it wants. Throws INTERNAL where it wants none.
  static Call::Kind load_kind(const LoadRequest& request);
  // The kind of an execute's call: every reading of its rows is SliceReading::both where there are none.
  static Call::Kind execute_kind(std::span<const SliceReading> readings);

  // Runs within `call`, which must last until the listener is called. Waits for neither storage nor device. Throws the errors that
  // are known before anything is read: MODEL_CORRUPT or PACK_CORRUPT for wrong sizes, INTERNAL for an entry that cannot be used, for a
  // part that is not wanted of an expert that is not sliced, and for lower slices that have no memory or are not those of the expert
  // in the slot.
  // The listener gets the others: STORAGE_FAILED, PACK_CORRUPT, MODEL_CORRUPT, DEVICE_OUT_OF_MEMORY, DEVICE_LOST. The slot is empty
  // unless the outcome says that the expert is loaded; after load_lower it keeps its upper slices in any case.
  void load(const Call& call, const ExpertSource& source, const LoadRequest& request, LoadListener& listener);
  // These act on the slot's running load, if there is one; from any thread. cancel settles it at once or after its current
  // operations.
  void cancel(int slot);
  void prioritize(int slot);
  void reorder(int slot, const std::optional<ExpertOrder>& order);
  StorageReads storage_reads() const;
  // let_go gives the slot's memory back to the device, with that of its lower slices; take allocates it again, without that. `call`
  // is a load call, so that nothing else uses the slot. A slot without memory cannot be loaded (INTERNAL). take throws
  // DEVICE_OUT_OF_MEMORY.
  void let_go(const Call& call);
  void take(const Call& call);
  // The same for the memory of lower slices alone; `call` is a move_lower call. take_lower throws INTERNAL for slots whose experts are
  // not sliced, and does nothing where the memory is there.
  void let_go_lower(const Call& call);
  void take_lower(const Call& call);
  bool has_memory(int slot) { return slot_at(slot).has_memory; }
  // Reads the expert's stored bytes into host memory and checks them; loads whose request has this number then take the bytes from
  // there. Returns when this is done, which may take long: nothing is read while an urgent load is running. One call at a time.
  // Throws DEVICE_OUT_OF_MEMORY, STORAGE_FAILED, PACK_CORRUPT, MODEL_CORRUPT; then no part of the expert is held.
  // `ticket`: from new_hold(), taken when the hold is requested.
  HoldOutcome hold(uint64_t ticket, int64_t number, const ExpertSource& source);
  uint64_t new_hold();
  // Ends every hold that already has a ticket, unless it is done; nothing is held for it. May be called from any thread.
  void cancel_hold();
  // Frees the host memory of an expert; loads that read it still run to their end.
  void drop_held(int64_t number);
  uint64_t held_bytes() const;

  // Turns the BF16 expert in the slot into fixed4, in spare memory. That memory then becomes the slot's, and the slot's old memory
  // is the spare for the next pack. Executes may run meanwhile: they read the old weights. The pack is given up where the slot
  // executes at its end, is loaded or gives its memory back; these wait for one piece of about 16,384 values at most. Only with
  // LoaderOptions::packs. One call at a time. `ticket`: from new_pack(), taken when the pack is requested.
  PackResult pack(uint64_t ticket, int slot);
  uint64_t new_pack();
  // Gives up every pack that already has a ticket, unless it is done. May be called from any thread.
  void cancel_pack();

  // Runs on the executor, or in its place (JobQueue::run_here), within `call`. hidden and output: rows x hidden_size floats.
  // `readings`: how each row reads a sliced expert; none: every row reads both slices. Rows of one reading that follow one another are
  // computed together. Returns milliseconds.
  double execute(const Call& call, int rows, std::span<const uint8_t> hidden, std::span<uint8_t> output,
                 std::span<const SliceReading> readings = {});

 private:
  struct Slot : LoadListener {
    void settled(const LoadOutcome& told, std::exception_ptr error) noexcept override;
    // False, with the error, where the biases could not be copied.
    bool copy_biases(std::exception_ptr& error) noexcept;

    std::mutex* mutex = nullptr;
    LoadListener* listener = nullptr;
    ExpertMemory* memory = nullptr;
    Backend* backend = nullptr;
    int index = 0;
    ExpertMatrices matrices;         // at the addresses where the memory placed the slot's expert
    std::vector<float> biases;       // biases of the loaded expert, until they are on the device
    std::optional<float> glu_limit;  // of the loaded expert
    bool loaded = false;
    bool lower_loaded = false;  // of a sliced expert: its lower slices are there, too
    bool has_memory = true;     // only the event loop uses it, because loads begin there
    bool loading = false;
    bool changes_lower = false;  // a load_lower or move_lower call runs
    int executing = 0;
    int reading_lower = 0;  // those of the executes that read lower slices
    // The parts that the running load wants; only the event loop writes it, before the load begins.
    bool wants_upper = true;
    bool wants_lower = true;
    uint64_t upper_fingerprint = 0;  // of the expert of the last load; only the event loop uses it
    uint64_t loads = 0;              // load calls so far
  };

  // Identifies the expert that is being packed: the one of the slot's last load.
  struct Packing {
    uint64_t ticket = 0;
    int slot = -1;
    uint64_t loads = 0;
  };
  bool is_packable(const Packing& packing);
  PackResult pack_pieces(const Packing& packing, Matrix (&to)[2], const Matrix (&from)[2]);
  bool adopt(const Packing& packing, const Matrix (&to)[2]);

  Slot& slot_at(int slot);
  bool is_sliced() const { return slice_bits(shape_.format) != 0; }
  void begin_call(int index, Call::Kind kind);
  void begin_execute(Slot& slot, Call::Kind kind);
  void check_load(const Call& call, const ExpertSource& source, const LoadRequest& request);
  void check_readings(const Call& call, int rows, std::span<const SliceReading> readings) const;
  void release_lower(Slot& slot);
  // The slot's matrices, for products with this reading.
  ExpertMatrices read_as(Slot& slot, SliceReading reading);
  void set_pages(Slot& slot, const ExpertPages& pages, const ExpertFormats& formats);

  std::shared_ptr<Device> device_;
  ExpertShape shape_;
  int max_rows_;
  int64_t experts_;
  uint64_t slot_bytes_;
  bool packs_;
  ExpertActivations activations_;
  std::unique_ptr<ExpertMemory> memory_;
  std::mutex mutex_;  // guards the slots' flags and the state of packing
  // Held while a piece is packed, and taken before mutex_. A writer to a slot sets a flag under mutex_, and then waits for this
  // mutex.
  std::mutex piece_mutex_;
  DeviceMemory pack_scratch_;
  uint64_t pack_tickets_ = 0;
  uint64_t cancelled_packs_ = 0;  // all tickets up to this one are cancelled
  std::vector<Slot> slots_;
  std::unique_ptr<HostChunkTable> held_;
  std::unique_ptr<ExpertLoader> loader_;  // last member, because it writes to the slots until its destructor ends
};

}  // namespace odmoe
