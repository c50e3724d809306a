// Pinned host memory into which files are read. The device copies directly from it, or reads it in place where device memory is
// host memory.
#pragma once
#include <cstdint>
#include <mutex>
#include <vector>

#include "device_arena.h"
#include "odmoe/memory.h"

namespace odmoe::cuda {

// Its methods may be called from any thread.
class StagingMemory {
 public:
  // integrated: device memory is host memory, so that staging counts against the budget.
  StagingMemory(DeviceArena& arena, bool integrated) : arena_(arena), integrated_(integrated) {}
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;

  bool counts() const { return integrated_; }
  // Returns zeroed memory. `of_budget`: false for memory outside the device's budget. Throws DEVICE_OUT_OF_MEMORY.
  DeviceBuffer allocate(uint64_t bytes, bool of_budget = true);
  // No copy may be using it.
  void release(DeviceBuffer& buffer) noexcept;

  // The address at which kernels read these bytes in place; null where a copy is better.
  const uint8_t* in_place(const uint8_t* host, uint64_t bytes) const;

 private:
  struct Stretch {
    uint8_t* host = nullptr;
    uint8_t* device = nullptr;
    uint64_t bytes = 0;
    bool of_budget = true;
  };

  DeviceArena& arena_;
  const bool integrated_;
  mutable std::mutex mutex_;  // guards the list
  std::vector<Stretch> stretches_;
};

}  // namespace odmoe::cuda
