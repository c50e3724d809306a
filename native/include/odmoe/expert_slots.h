// A worker's few places for experts. All memory is taken from the device when the pool is made, so that a worker's memory is a
// fact: slots for the weights, one staging area and one tile of activations that all slots share.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "odmoe/device.h"
#include "odmoe/expert.h"

namespace odmoe {

struct LoadOutcome {
  bool loaded = false;  // false: cancelled; the slot is empty
  uint64_t read_bytes = 0;
  double load_ms = 0;
};

struct ExpertSlotBytes {
  uint64_t slot_bytes = 0;
  uint64_t shared_bytes = 0;
};

ExpertSlotBytes expert_slot_bytes(const Backend& backend, const ExpertShape& shape, int max_rows);

// A slot is loaded or executed, never both: a call of either kind is announced when it is asked for, and while it lasts a call
// of the other kind throws INTERNAL.
class ExpertSlots {
 public:
  // Throws DEVICE_OUT_OF_MEMORY.
  ExpertSlots(std::shared_ptr<Device> device, const ExpertShape& shape, int count, int max_rows);

  int count() const { return static_cast<int>(slots_.size()); }
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

   private:
    std::shared_ptr<ExpertSlots> slots_;
    int slot_;
    Kind kind_;
  };

  // On the storage thread, within a Call. Throws what reading throws, MODEL_CORRUPT for wrong sizes; the slot is then empty.
  LoadOutcome load(int slot, const ExpertSource& source);
  // Stops the slot's load, if one is asked for or running. From any thread.
  void cancel(int slot);
  // On the executor, within a Call. hidden and output: rows x hidden_size floats. Returns milliseconds.
  double execute(int slot, int rows, std::span<const uint8_t> hidden, std::span<uint8_t> output);

 private:
  struct Slot {
    ExpertMatrices matrices;
    bool loaded = false;
    bool loading = false;
    int executing = 0;
    std::atomic<bool> cancelled = false;
  };

  Slot& slot_at(int slot);

  std::shared_ptr<Device> device_;
  ExpertShape shape_;
  int max_rows_;
  uint64_t slot_bytes_;
  DeviceMemory staging_;
  ExpertActivations activations_;
  std::mutex mutex_;  // guards the slots' flags
  std::vector<Slot> slots_;
};

}  // namespace odmoe
