#include "host_chunks.h"

#include <sys/mman.h>

#include <string>
#include <utility>

#include "odmoe/error.h"

namespace odmoe {
namespace {

uint64_t align_up(uint64_t bytes) { return (bytes + kReadAlignment - 1) / kReadAlignment * kReadAlignment; }

// Memory is mapped, so that it returns to the system as soon as it is freed.
uint8_t* map_memory(uint64_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) return static_cast<uint8_t*>(memory);
  throw Error(ErrorCode::device_out_of_memory,
              "the host has no " + std::to_string(bytes) + " bytes for an expert's chunks; set worker.host_memory lower");
}

}  // namespace

HostChunks::HostChunks(const std::shared_ptr<Backend>& backend, const PartSizes& part_bytes, const PartSizes& fingerprints)
    : bytes_(align_up(part_bytes[0]) + align_up(part_bytes[1]) + kReadAlignment), fingerprints_(fingerprints) {
  uint8_t* start = nullptr;
  if (backend->writes_from_any_memory()) {
    start = plain_ = map_memory(bytes_);
  } else {
    pinned_ = DeviceMemory(backend, bytes_, DeviceMemory::Kind::host_staging);
    start = pinned_.bytes();
  }
  const uint64_t beyond = reinterpret_cast<uintptr_t>(start) % kReadAlignment;
  if (beyond != 0) start += kReadAlignment - beyond;
  parts_ = {start, start + align_up(part_bytes[0])};
}

HostChunks::~HostChunks() {
  if (plain_ != nullptr) munmap(plain_, bytes_);
}

void HostChunkTable::put(int64_t expert, std::shared_ptr<const HostChunks> chunks) {
  drop(expert);
  const std::lock_guard lock(mutex_);
  bytes_ += chunks->bytes();
  held_.emplace(expert, std::move(chunks));
}

std::shared_ptr<const HostChunks> HostChunkTable::find(int64_t expert) const {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(expert);
  return found == held_.end() ? nullptr : found->second;
}

void HostChunkTable::drop(int64_t expert) {
  // Its memory is freed without the lock, because that may take a while.
  std::shared_ptr<const HostChunks> dropped;
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(expert);
  if (found == held_.end()) return;
  dropped = std::move(found->second);
  bytes_ -= dropped->bytes();
  held_.erase(found);
}

uint64_t HostChunkTable::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace odmoe
