// Waits for points in time end in order and never early; their number is bounded, and they end with their queue.
#include "odmoe/timer_queue.h"

#include <future>
#include <vector>

#include "native_tests.h"

namespace odmoe::test {
namespace {

using Clock = TimerQueue::Clock;
using std::chrono::microseconds;

struct Told {
  std::vector<int> order;
  bool early = false;
  size_t wanted = 0;
  std::promise<void> all;
};

class Waiter : public TimerListener {
 public:
  Waiter(Told& told, int number, Clock::time_point at) : told_(told), number_(number), at_(at) {}
  void due() noexcept override {
    told_.early = told_.early || Clock::now() < at_;
    told_.order.push_back(number_);
    if (told_.order.size() == told_.wanted) told_.all.set_value();
  }

 private:
  Told& told_;
  int number_;
  Clock::time_point at_;
};

void tells_in_order_and_never_early() {
  Told told;
  const std::vector<int> delays_us = {3000, 500, 8000, 500, 2000, -1000, 5000};
  told.wanted = delays_us.size();
  const auto start = Clock::now();
  std::vector<Waiter> waiters;
  for (size_t i = 0; i < delays_us.size(); i++) {
    waiters.emplace_back(told, static_cast<int>(i), start + microseconds(20000 + delays_us[i]));
  }
  TimerQueue timers;
  for (size_t i = 0; i < waiters.size(); i++) timers.post(start + microseconds(20000 + delays_us[i]), waiters[i]);
  told.all.get_future().wait();
  check(!told.early, "a wait ended early");
  check(told.order.size() == delays_us.size(), "each is told once");
}

void forgets_with_its_queue() {
  Told told;
  Waiter waiter(told, 0, Clock::now());
  {
    TimerQueue timers;
    timers.post(Clock::now() + std::chrono::hours(1), waiter);
  }
  check(told.order.empty(), "a wait ended an hour early");
}

void is_bounded() {
  Told told;
  Waiter waiter(told, 0, Clock::now());
  TimerQueue timers;
  const auto later = Clock::now() + std::chrono::hours(1);
  for (size_t i = 0; i < kWaitLimit; i++) timers.post(later, waiter);
  check_refused(ErrorCode::queue_full, [&] { timers.post(later, waiter); });
}

}  // namespace

void add_timer_queue_cases(std::vector<Case>& cases) {
  cases.push_back({"timers: all are told, none early", tells_in_order_and_never_early});
  cases.push_back({"timers: forgotten with their queue", forgets_with_its_queue});
  cases.push_back({"timers: bounded", is_bounded});
}

}  // namespace odmoe::test
