#include "arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "odmoe/error.h"

namespace odmoe::cpu {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kHugePage = uint64_t{2} << 20;

// Maps whole pages, the first on a huge-page boundary, so that translation misses do not slow down streams of weights.
void* map_huge(uint64_t bytes) {
  const uint64_t reserved = bytes + kHugePage;
  void* mapped = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const uintptr_t start = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = (start + kHugePage - 1) / kHugePage * kHugePage;
  const uint64_t before = aligned - start;
  const uint64_t after = kHugePage - before;
  if (before != 0) munmap(mapped, before);
  if (after != 0) munmap(reinterpret_cast<void*>(aligned + bytes), after);
#ifdef MADV_HUGEPAGE
  // This is only advice: a kernel without huge pages gives small ones.
  static_cast<void>(madvise(reinterpret_cast<void*>(aligned), bytes, MADV_HUGEPAGE));
#endif
  return reinterpret_cast<void*>(aligned);
}

// Every page size in use divides 64 KiB.
constexpr uint64_t kPageMultiple = 64 << 10;

uint64_t mapped_bytes(uint64_t bytes) { return (bytes + kPageMultiple - 1) / kPageMultiple * kPageMultiple; }

void* take(uint64_t bytes) {
  if (bytes >= kHugePage) return map_huge(mapped_bytes(bytes));
  const uint64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data != nullptr) std::memset(data, 0, rounded);
  return data;
}

std::string mebibytes(uint64_t bytes) {
  return std::to_string(bytes) + " bytes (" + std::to_string((bytes + (1u << 19)) >> 20) + " MiB)";
}

}  // namespace

DeviceBuffer Arena::allocate(uint64_t bytes) {
  if (bytes == 0) return {};
  {
    const std::lock_guard lock(mutex_);
    if (budget_bytes_ != 0 && (bytes > budget_bytes_ || used_bytes_ > budget_bytes_ - bytes)) {
      throw Error(ErrorCode::device_out_of_memory, "the cpu device cannot allocate " + mebibytes(bytes) + ": " +
                                                       mebibytes(used_bytes_) + " of its budget of " + mebibytes(budget_bytes_) +
                                                       " are in use; raise the node's memory budget or give it less to hold");
    }
    used_bytes_ += bytes;
  }
  // A size near 2^64 would wrap around when rounded up.
  void* data = bytes > UINT64_MAX - 4 * kHugePage ? nullptr : take(bytes);
  const std::lock_guard lock(mutex_);
  if (data == nullptr) {
    used_bytes_ -= bytes;
    throw Error(ErrorCode::device_out_of_memory,
                "the operating system has no " + mebibytes(bytes) +
                    " of memory for the cpu device; free memory on this machine or give the node less to hold");
  }
  high_water_bytes_ = std::max(high_water_bytes_, used_bytes_);
  return {data, bytes};
}

void Arena::release(DeviceBuffer& buffer) noexcept {
  if (buffer.data == nullptr) return;
  if (buffer.bytes >= kHugePage) {
    munmap(buffer.data, mapped_bytes(buffer.bytes));
  } else {
    std::free(buffer.data);
  }
  const std::lock_guard lock(mutex_);
  used_bytes_ -= buffer.bytes;
  buffer = {};
}

uint64_t Arena::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

uint64_t Arena::high_water_bytes() const {
  const std::lock_guard lock(mutex_);
  return high_water_bytes_;
}

}  // namespace odmoe::cpu
