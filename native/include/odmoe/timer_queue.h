// Waits for points in time, all on one thread that sleeps between them.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

namespace odmoe {

class TimerListener {
 public:
  virtual ~TimerListener() = default;
  // Called once, on the timers' thread, never before its time; the listener is not used afterwards.
  virtual void due() noexcept = 0;
};

inline constexpr size_t kWaitLimit = 65536;

// Its destructor forgets waiting listeners: they are never called.
class TimerQueue {
 public:
  using Clock = std::chrono::steady_clock;

  TimerQueue();
  ~TimerQueue();
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;
  // May be called from any thread. Listeners of the same time are called in the order of their posts. Throws QUEUE_FULL.
  void post(Clock::time_point at, TimerListener& listener);

 private:
  struct Wait {
    Clock::time_point at;
    uint64_t arrival;
    TimerListener* listener;
    bool operator>(const Wait& other) const { return at != other.at ? at > other.at : arrival > other.arrival; }
  };

  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::priority_queue<Wait, std::vector<Wait>, std::greater<>> waits_;
  uint64_t arrivals_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace odmoe
