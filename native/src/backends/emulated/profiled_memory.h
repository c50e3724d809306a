// What a profiled device would hold, counted in bytes of the profiled model.
#pragma once
#include <array>
#include <cstdint>
#include <mutex>

#include "odmoe/emulation.h"

namespace odmoe::emulated {

// From any thread.
class ProfiledMemory {
 public:
  // budget_bytes 0: no limit.
  ProfiledMemory(const Emulation& emulation, uint64_t budget_bytes);

  uint64_t bytes_of(Holding what) const { return bytes_of_one_[static_cast<size_t>(what)]; }
  // Throws DEVICE_OUT_OF_MEMORY, naming what the profiled device would need; nothing is counted then.
  void hold(Holding what, int64_t count);
  void let_go(Holding what, int64_t count) noexcept;

  uint64_t budget_bytes() const { return budget_bytes_; }
  uint64_t used_bytes() const;
  uint64_t high_water_bytes() const;

 private:
  const std::array<uint64_t, kHoldings> bytes_of_one_;
  const uint64_t budget_bytes_;
  mutable std::mutex mutex_;
  uint64_t used_bytes_ = 0;
  uint64_t high_water_bytes_ = 0;
};

}  // namespace odmoe::emulated
