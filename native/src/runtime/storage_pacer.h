// Simulates slower storage for measurements: computes when a read would end at a given rate. Pure: callers pass the time.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>

namespace odmoe {

class StoragePacer {
 public:
  using Clock = std::chrono::steady_clock;

  // 0: the speed of the storage itself.
  explicit StoragePacer(double bytes_per_s) : bytes_per_s_(bytes_per_s) {}

  bool is_on() const { return bytes_per_s_ > 0; }

  // The end of a read that begins now. If the read could have begun earlier (not `after_idle`), its time counts from the end of the
  // read before, so that a thread that sleeps a little too long each time still reads at the rate.
  Clock::time_point end_of_read(uint64_t bytes, Clock::time_point now, bool after_idle) {
    const std::chrono::duration<double> taken(static_cast<double>(bytes) / bytes_per_s_);
    const Clock::time_point earliest = after_idle ? now : now - kMakeUpLimit;
    free_at_ = std::max(free_at_, earliest) + std::chrono::duration_cast<Clock::duration>(taken);
    return free_at_;
  }

 private:
  // Limit of the time that later reads can make up, so that storage slower than the rate builds up no credit.
  static constexpr std::chrono::milliseconds kMakeUpLimit{20};

  double bytes_per_s_;
  Clock::time_point free_at_{};
};

}  // namespace odmoe
