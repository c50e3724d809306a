#include "staging_memory.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>

#include "cuda_error.h"

namespace odmoe::cuda {

DeviceBuffer StagingMemory::allocate(uint64_t bytes, bool of_budget) {
  if (bytes == 0) return {};
  const bool counted = integrated_ && of_budget;
  if (counted) arena_.reserve(bytes, "staging memory");
  DeviceBuffer buffer{nullptr, bytes};
  try {
    check_pinned(cudaHostAlloc(&buffer.data, bytes, cudaHostAllocMapped), bytes);
    std::memset(buffer.data, 0, bytes);
    if (integrated_) {
      void* device = nullptr;
      check(cudaHostGetDevicePointer(&device, buffer.data, 0), "mapping pinned host memory");
      const std::lock_guard lock(mutex_);
      stretches_.push_back({static_cast<uint8_t*>(buffer.data), static_cast<uint8_t*>(device), bytes, of_budget});
    }
  } catch (...) {
    if (buffer.data != nullptr) cudaFreeHost(buffer.data);
    if (counted) arena_.give_back(bytes);
    throw;
  }
  return buffer;
}

void StagingMemory::release(DeviceBuffer& buffer) noexcept {
  if (buffer.data != nullptr) {
    bool counted = false;
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(stretches_, [&](const Stretch& stretch) {
        if (stretch.host != buffer.data) return false;
        counted = stretch.of_budget;
        return true;
      });
    }
    cudaFreeHost(buffer.data);
    if (counted) arena_.give_back(buffer.bytes);
  }
  buffer = {};
}

const uint8_t* StagingMemory::in_place(const uint8_t* host, uint64_t bytes) const {
  if (!integrated_) return nullptr;
  const std::lock_guard lock(mutex_);
  for (const Stretch& stretch : stretches_) {
    if (host >= stretch.host && host + bytes <= stretch.host + stretch.bytes) return stretch.device + (host - stretch.host);
  }
  return nullptr;
}

}  // namespace odmoe::cuda
