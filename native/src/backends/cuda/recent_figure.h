// A figure that takes a while to be told, and is asked for more often than it need be told.
#pragma once
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

namespace odmoe::cuda {

// Methods from any thread.
class RecentFigure {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kOldest{10};

  // The last answer, or a new one where that is as old.
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
