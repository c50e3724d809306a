// Device memory counted against the node's budget. The driver's context counts too, as it is there before anything is allocated.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <mutex>

#include "odmoe/memory.h"

namespace odmoe::cuda {

class DeviceArena {
 public:
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
  // Leaves the buffer empty; an empty buffer is ignored. Waits for what the device is doing.
  void release(DeviceBuffer& buffer) noexcept;

  // Counts memory that is taken otherwise (physical blocks of expert pages). reserve throws DEVICE_OUT_OF_MEMORY.
  void reserve(uint64_t bytes, const char* what);
  void give_back(uint64_t bytes) noexcept;

  uint64_t budget_bytes() const { return budget_bytes_; }
  uint64_t context_bytes() const { return context_bytes_; }
  uint64_t used_bytes() const;
  uint64_t high_water_bytes() const;

 private:
  // In which cudaMalloc takes memory of the device.
  static constexpr uint64_t kBlockBytes = uint64_t{2} << 20;

  // Throws DEVICE_OUT_OF_MEMORY with what the device has left.
  static void take(DeviceBuffer& buffer);

  const uint64_t budget_bytes_;
  const uint64_t context_bytes_;
  cudaStream_t clearing_ = nullptr;  // apart, so that a new buffer waits for nothing but its zeros
  mutable std::mutex mutex_;
  uint64_t used_bytes_;
  uint64_t high_water_bytes_;
};

}  // namespace odmoe::cuda
