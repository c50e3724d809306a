// A wait that another thread can end.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace odmoe {

class Interruption {
 public:
  using Clock = std::chrono::steady_clock;

  // From any thread.
  void raise() {
    {
      const std::lock_guard lock(mutex_);
      raised_ = true;
    }
    changed_.notify_all();
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    raised_ = false;
  }
  bool is_raised() const {
    const std::lock_guard lock(mutex_);
    return raised_;
  }
  // False when it was raised before that time.
  bool wait_until(Clock::time_point end) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_until(lock, end, [this] { return raised_; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool raised_ = false;
};

}  // namespace odmoe
