#include "device_arena.h"

#include <algorithm>
#include <string>

#include "cuda_error.h"
#include "odmoe/error.h"

namespace odmoe::cuda {

DeviceArena::DeviceArena(uint64_t budget_bytes, uint64_t context_bytes)
    : budget_bytes_(budget_bytes),
      context_bytes_(context_bytes),
      used_bytes_(context_bytes),
      high_water_bytes_(context_bytes) {
  if (budget_bytes == 0 || context_bytes <= budget_bytes) {
    check(cudaStreamCreateWithFlags(&clearing_, cudaStreamNonBlocking), "creating a stream");
    return;
  }
  throw Error("DEVICE_OUT_OF_MEMORY", "the driver's context alone takes " + std::to_string(context_bytes) +
                                          " bytes of the device, the budget is " + std::to_string(budget_bytes) +
                                          "; give this node more (--memory-budget), or let it run on the processor (--device cpu)");
}

void DeviceArena::reserve(uint64_t bytes, const char* what) {
  const std::lock_guard lock(mutex_);
  if (budget_bytes_ != 0 && (bytes > budget_bytes_ || used_bytes_ > budget_bytes_ - bytes)) {
    throw Error("DEVICE_OUT_OF_MEMORY", std::string(what) + " takes " + std::to_string(bytes) +
                                            " bytes of the device; of the budget's " + std::to_string(budget_bytes_) + " " +
                                            std::to_string(used_bytes_) + " are in use, " + std::to_string(context_bytes_) +
                                            " of them by the driver's context; give this node more (--memory-budget)");
  }
  used_bytes_ += bytes;
  high_water_bytes_ = std::max(high_water_bytes_, used_bytes_);
}

void DeviceArena::give_back(uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  used_bytes_ -= bytes;
}

DeviceArena::~DeviceArena() {
  if (clearing_ != nullptr) cudaStreamDestroy(clearing_);
}

void DeviceArena::take(DeviceBuffer& buffer) {
  const cudaError_t error = cudaMalloc(&buffer.data, buffer.bytes);
  if (error != cudaErrorMemoryAllocation) return check(error, "allocating device memory");
  cudaGetLastError();
  size_t free = 0;
  size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "reading the device's free memory");
  throw Error("DEVICE_OUT_OF_MEMORY", "a buffer takes " + std::to_string(buffer.bytes) + " bytes of the device, of whose " +
                                          std::to_string(total) + " only " + std::to_string(free) +
                                          " are free; stop what else uses it (nvidia-smi), give this node less to hold, or let it run on "
                                          "the processor (--device cpu)");
}

DeviceBuffer DeviceArena::allocate(uint64_t bytes) {
  if (bytes == 0) return {};
  reserve(counted(bytes), "a buffer");
  DeviceBuffer buffer{nullptr, bytes};
  try {
    take(buffer);
    check(cudaMemsetAsync(buffer.data, 0, bytes, clearing_), "clearing device memory");
    check(cudaStreamSynchronize(clearing_), "clearing device memory");
  } catch (...) {
    if (buffer.data != nullptr) cudaFree(buffer.data);
    give_back(counted(bytes));
    throw;
  }
  return buffer;
}

void DeviceArena::release(DeviceBuffer& buffer) noexcept {
  if (buffer.data != nullptr) {
    cudaFree(buffer.data);
    give_back(counted(buffer.bytes));
  }
  buffer = {};
}

uint64_t DeviceArena::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

uint64_t DeviceArena::high_water_bytes() const {
  const std::lock_guard lock(mutex_);
  return high_water_bytes_;
}

}  // namespace odmoe::cuda
