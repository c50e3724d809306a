#include "wait_call.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "arguments.h"
#include "async_call.h"
#include "odmoe/timer_queue.h"

namespace odmoe {
namespace {

using Clock = TimerQueue::Clock;

// A pending wait; it owns itself until it is called.
class WaitCall : public PromisedCall<Nothing, decltype(&to_undefined)>, public TimerListener {
 public:
  explicit WaitCall(Napi::Env env) : PromisedCall(env, &to_undefined, {}) {}

  void due() noexcept override {
    value_.emplace();
    deliver();
  }

 private:
  void let_go() override {}
};

// Rounds up: never before the given time.
Clock::time_point time_at(double monotonic_ms) {
  constexpr double kNanosecondsPerMs = 1e6;
  constexpr double kLastMs = 9e12;  // nanoseconds are counted in 63 bits
  const double nanoseconds = std::ceil(std::clamp(monotonic_ms, 0.0, kLastMs) * kNanosecondsPerMs);
  return Clock::time_point(std::chrono::nanoseconds(static_cast<int64_t>(nanoseconds)));
}

}  // namespace

Napi::Value wait_until_of(const Napi::CallbackInfo& info) {
  const Clock::time_point at = time_at(to_number(info[0], "monotonicMs"));
  AddonData& data = AddonData::of(info.Env());
  if (data.timers == nullptr) data.timers = std::make_unique<TimerQueue>();
  auto call = std::make_unique<WaitCall>(info.Env());
  const Napi::Promise promise = call->promise();
  data.timers->post(at, *call);
  call.release();
  data.completions->call_began(info.Env());
  return promise;
}

}  // namespace odmoe
