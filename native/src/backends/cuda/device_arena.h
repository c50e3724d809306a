// Device memory counted against the node's budget. The driver's context counts too, as it is there before anything is allocated.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "odmoe/memory.h"

namespace odmoe::cuda {

// What is released stays with the arena for the next buffer of its size, as the driver may wait for all that the device does before
// it takes memory back. It gets it back as soon as the budget or the device has no other room.
class DeviceArena {
 public:
  // Of spare buffers, the oldest go first. More would be missed by the device's other users: daemons, a display.
  static constexpr uint64_t kMostSpareBytes = uint64_t{256} << 20;
  static constexpr size_t kMostSpareBuffers = 1024;

  // budget_bytes 0: no limit. Throws DEVICE_OUT_OF_MEMORY when the budget does not hold the context.
  DeviceArena(uint64_t budget_bytes, uint64_t context_bytes);
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  // What a buffer counts for: small ones share the driver's blocks, a larger one has blocks of its own.
  static constexpr uint64_t counted(uint64_t bytes) {
    return bytes <= kBlockBytes / 2 ? bytes : (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  }

  // Zeroed. Throws DEVICE_OUT_OF_MEMORY.
  DeviceBuffer allocate(uint64_t bytes);
  // Leaves the buffer empty; an empty buffer is ignored. Nothing may be using it any more: neither the driver nor the arena waits.
  void release(DeviceBuffer& buffer) noexcept;

  // Counts memory that is taken otherwise (physical blocks of expert pages). reserve throws DEVICE_OUT_OF_MEMORY.
  void reserve(uint64_t bytes, const char* what);
  void give_back(uint64_t bytes) noexcept;
  // Gives all spare buffers back to the driver, for whoever has been refused memory. Whether there were any.
  bool give_up_spare() noexcept;

  uint64_t budget_bytes() const { return budget_bytes_; }
  uint64_t context_bytes() const { return context_bytes_; }
  // Without spare buffers.
  uint64_t used_bytes() const;
  uint64_t high_water_bytes() const;

 private:
  // In which cudaMalloc takes memory of the device.
  static constexpr uint64_t kBlockBytes = uint64_t{2} << 20;

  void count(uint64_t bytes);  // with the mutex held
  // Frees the oldest spare buffers until no more than so much is left. With the mutex held: nobody takes room that the driver has not
  // got back yet.
  void trim_spare(uint64_t bytes, size_t buffers) noexcept;
  // One of exactly its size. False: there is none.
  bool take_spare(DeviceBuffer& buffer);
  // Throws DEVICE_OUT_OF_MEMORY with what the device has left.
  void take(DeviceBuffer& buffer);

  const uint64_t budget_bytes_;
  const uint64_t context_bytes_;
  const uint64_t most_spare_bytes_;
  cudaStream_t clearing_ = nullptr;  // apart, so that a new buffer waits for nothing but its zeros
  mutable std::mutex mutex_;
  uint64_t used_bytes_;
  uint64_t high_water_bytes_;
  uint64_t spare_bytes_ = 0;         // with used_bytes_ never more than the budget
  std::vector<DeviceBuffer> spare_;  // in the order of their release
};

}  // namespace odmoe::cuda
