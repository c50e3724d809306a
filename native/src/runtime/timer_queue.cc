#include "odmoe/timer_queue.h"

#include <string>

#include "odmoe/error.h"
#include "odmoe/precise_timers.h"

namespace odmoe {

TimerQueue::TimerQueue() : thread_([this] { run(); }) {}

TimerQueue::~TimerQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void TimerQueue::post(Clock::time_point at, TimerListener& listener) {
  bool is_next = false;
  {
    const std::lock_guard lock(mutex_);
    if (waits_.size() >= kWaitLimit) {
      throw Error(ErrorCode::queue_full, std::to_string(kWaitLimit) + " waits are under way already; await some of them first");
    }
    is_next = waits_.empty() || at < waits_.top().at;
    waits_.push({at, arrivals_++, &listener});
  }
  if (is_next) changed_.notify_one();
}

void TimerQueue::run() {
  use_precise_timers();
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (waits_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const Wait next = waits_.top();
    if (Clock::now() < next.at) {
      changed_.wait_until(lock, next.at);
      continue;
    }
    waits_.pop();
    lock.unlock();
    next.listener->due();
    lock.lock();
  }
}

}  // namespace odmoe
