// Device memory that counts against the node's budget. The driver's context counts, too, because it exists before anything is
// allocated.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "odmoe/memory.h"

namespace odmoe::cuda {

// Released buffers stay with the arena for the next buffer of the same size, because the driver may wait for all work of the device
// before it takes memory back. The arena returns them to the driver as soon as the budget or the device has no other room.
class DeviceArena {
 public:
  // Limits of spare buffers; the oldest are freed first. The device's other users (daemons, a display) need the rest.
  static constexpr uint64_t kMostSpareBytes = uint64_t{256} << 20;
  static constexpr size_t kMostSpareBuffers = 1024;

  // budget_bytes 0: no limit. Throws DEVICE_OUT_OF_MEMORY when the budget is smaller than the context.
  DeviceArena(uint64_t budget_bytes, uint64_t context_bytes);
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  // Bytes that a buffer counts for: small buffers share the driver's blocks, a larger one has its own blocks.
  static constexpr uint64_t counted(uint64_t bytes) {
    return bytes <= kBlockBytes / 2 ? bytes : (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  }

  // Returns zeroed memory. Throws DEVICE_OUT_OF_MEMORY.
  DeviceBuffer allocate(uint64_t bytes);
  // Leaves the buffer empty; an empty buffer is ignored. Nothing may still use it: neither the driver nor the arena waits.
  void release(DeviceBuffer& buffer) noexcept;

  // Counts memory that is allocated elsewhere (physical blocks of expert pages). reserve throws DEVICE_OUT_OF_MEMORY.
  void reserve(uint64_t bytes, const char* what);
  void give_back(uint64_t bytes) noexcept;
  // Gives all spare buffers back to the driver, after an allocation elsewhere was refused. Returns whether there were any.
  bool give_up_spare() noexcept;

  uint64_t budget_bytes() const { return budget_bytes_; }
  uint64_t context_bytes() const { return context_bytes_; }
  // Without spare buffers.
  uint64_t used_bytes() const;
  uint64_t high_water_bytes() const;

 private:
  // Size of the blocks in which cudaMalloc takes device memory.
  static constexpr uint64_t kBlockBytes = uint64_t{2} << 20;

  void count(uint64_t bytes);  // with the mutex held
  // Frees the oldest spare buffers until no more than these limits are left. The caller holds the mutex, so that nobody uses room
  // that the driver has not got back yet.
  void trim_spare(uint64_t bytes, size_t buffers) noexcept;
  // Takes a spare buffer of exactly this size. False: there is none.
  bool take_spare(DeviceBuffer& buffer);
  // Throws DEVICE_OUT_OF_MEMORY, whose message has the device's free memory.
  void take(DeviceBuffer& buffer);

  const uint64_t budget_bytes_;
  const uint64_t context_bytes_;
  const uint64_t most_spare_bytes_;
  cudaStream_t clearing_ = nullptr;  // its own stream, so that a new buffer waits only for its zeros
  mutable std::mutex mutex_;
  uint64_t used_bytes_;
  uint64_t high_water_bytes_;
  uint64_t spare_bytes_ = 0;         // together with used_bytes_ at most the budget
  std::vector<DeviceBuffer> spare_;  // in the order of their release
};

}  // namespace odmoe::cuda
