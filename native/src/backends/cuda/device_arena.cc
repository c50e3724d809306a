#include "device_arena.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "cuda_error.h"
#include "odmoe/error.h"

namespace odmoe::cuda {
namespace {

// 0: released memory goes back to the driver at once, so that a use after the release faults. For tests.
constexpr const char* kSpareVariable = "ODMOE_CUDA_SPARE_BYTES";

uint64_t most_spare_bytes() {
  const char* const text = std::getenv(kSpareVariable);
  return text != nullptr && *text != '\0' ? std::strtoull(text, nullptr, 10) : DeviceArena::kMostSpareBytes;
}

}  // namespace

DeviceArena::DeviceArena(uint64_t budget_bytes, uint64_t context_bytes)
    : budget_bytes_(budget_bytes),
      context_bytes_(context_bytes),
      most_spare_bytes_(most_spare_bytes()),
      used_bytes_(context_bytes),
      high_water_bytes_(context_bytes) {
  if (budget_bytes != 0 && context_bytes > budget_bytes) {
    throw Error(ErrorCode::device_out_of_memory,
                "the driver's context alone takes " + std::to_string(context_bytes) + " bytes of the device, the budget is " +
                    std::to_string(budget_bytes) +
                    "; give this node more (--memory-budget), or let it run on the processor (--device cpu)");
  }
  spare_.reserve(kMostSpareBuffers);  // release() must not fail
  check(cudaStreamCreateWithFlags(&clearing_, cudaStreamNonBlocking), "creating a stream");
}

DeviceArena::~DeviceArena() {
  give_up_spare();
  if (clearing_ != nullptr) cudaStreamDestroy(clearing_);
}

void DeviceArena::count(uint64_t bytes) {
  used_bytes_ += bytes;
  high_water_bytes_ = std::max(high_water_bytes_, used_bytes_);
}

void DeviceArena::reserve(uint64_t bytes, const char* what) {
  const std::lock_guard lock(mutex_);
  if (budget_bytes_ != 0) {
    if (bytes > budget_bytes_ || used_bytes_ > budget_bytes_ - bytes) {
      throw Error(ErrorCode::device_out_of_memory,
                  std::string(what) + " takes " + std::to_string(bytes) + " bytes of the device; of the budget's " +
                      std::to_string(budget_bytes_) + " " + std::to_string(used_bytes_) + " are in use, " +
                      std::to_string(context_bytes_) + " of them by the driver's context; give this node more (--memory-budget)");
    }
    trim_spare(budget_bytes_ - bytes - used_bytes_, kMostSpareBuffers);
  }
  count(bytes);
}

void DeviceArena::give_back(uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  used_bytes_ -= bytes;
}

void DeviceArena::trim_spare(uint64_t bytes, size_t buffers) noexcept {
  size_t freed = 0;
  for (; spare_bytes_ > bytes || spare_.size() - freed > buffers; ++freed) {
    cudaFree(spare_[freed].data);
    spare_bytes_ -= counted(spare_[freed].bytes);
  }
  spare_.erase(spare_.begin(), spare_.begin() + static_cast<std::ptrdiff_t>(freed));
}

bool DeviceArena::give_up_spare() noexcept {
  const std::lock_guard lock(mutex_);
  const bool has_some = !spare_.empty();
  trim_spare(0, 0);
  return has_some;
}

bool DeviceArena::take_spare(DeviceBuffer& buffer) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(spare_.rbegin(), spare_.rend(), [&](const DeviceBuffer& spare) { return spare.bytes == buffer.bytes; });
  if (found == spare_.rend()) return false;
  buffer = *found;
  spare_.erase(std::next(found).base());
  spare_bytes_ -= counted(buffer.bytes);
  count(counted(buffer.bytes));
  return true;
}

void DeviceArena::take(DeviceBuffer& buffer) {
  cudaError_t error = cudaMalloc(&buffer.data, buffer.bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    if (give_up_spare()) error = cudaMalloc(&buffer.data, buffer.bytes);
  }
  if (error != cudaErrorMemoryAllocation) return check(error, "allocating device memory");
  cudaGetLastError();
  size_t free = 0;
  size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "reading the device's free memory");
  throw Error(ErrorCode::device_out_of_memory,
              "a buffer takes " + std::to_string(buffer.bytes) + " bytes of the device, of whose " + std::to_string(total) +
                  " only " + std::to_string(free) +
                  " are free; stop what else uses it (nvidia-smi), give this node less to hold, or let it run on "
                  "the processor (--device cpu)");
}

DeviceBuffer DeviceArena::allocate(uint64_t bytes) {
  if (bytes == 0) return {};
  DeviceBuffer buffer{nullptr, bytes};
  if (!take_spare(buffer)) reserve(counted(bytes), "a buffer");
  try {
    if (buffer.data == nullptr) take(buffer);
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
    const uint64_t bytes = counted(buffer.bytes);
    const std::lock_guard lock(mutex_);
    if (bytes > most_spare_bytes_) {
      cudaFree(buffer.data);
    } else {
      trim_spare(most_spare_bytes_ - bytes, kMostSpareBuffers - 1);
      spare_.push_back(buffer);
      spare_bytes_ += bytes;
    }
    used_bytes_ -= bytes;
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
