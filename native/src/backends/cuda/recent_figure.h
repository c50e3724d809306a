// Caches a figure that takes a while to get and is asked for more often than it must be new.
#pragma once
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

namespace odmoe::cuda {

// Its methods may be called from any thread.
class RecentFigure {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kOldest{10};

  // The last figure, or a new one if the last is kOldest old or older.
  template <class Ask>
  std::optional<uint64_t> get(Clock::time_point now, Ask ask) {
    const std::lock_guard lock(mutex_);
    if (!asked_.has_value() || now - *asked_ >= kOldest) {
      figure_ = ask();
      asked_ = now;
    }
    return figure_;
  }

 private:
  std::mutex mutex_;
  std::optional<Clock::time_point> asked_;
  std::optional<uint64_t> figure_;
};

}  // namespace odmoe::cuda
