// Device memory of the CPU backend: every byte is counted against a budget that cannot be exceeded. Thread-safe.
#pragma once
#include <cstdint>
#include <mutex>

#include "odmoe/backend.h"

namespace odmoe::cpu {

class Arena {
 public:
  // budget_bytes 0: no limit.
  explicit Arena(uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns memory that is zeroed and aligned to 64 bytes (big buffers to a huge page). Throws
  // Error(ErrorCode::device_out_of_memory).
  DeviceBuffer allocate(uint64_t bytes);
  // Leaves the buffer empty; an empty buffer is ignored.
  void release(DeviceBuffer& buffer) noexcept;

  uint64_t budget_bytes() const { return budget_bytes_; }
  uint64_t used_bytes() const;
  uint64_t high_water_bytes() const;

 private:
  const uint64_t budget_bytes_;
  mutable std::mutex mutex_;
  uint64_t used_bytes_ = 0;
  uint64_t high_water_bytes_ = 0;
};

}  // namespace odmoe::cpu
