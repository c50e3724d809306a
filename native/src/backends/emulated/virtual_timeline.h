// When a part of a profiled device (its processor, its link) would be done with one piece of work after another. Pure: time comes in.
#pragma once
#include <algorithm>
#include <chrono>

namespace odmoe::emulated {

class VirtualTimeline {
 public:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::duration<double, std::milli>;

  // Work that was asked for then begins when the device is free: not when a thread here has woken up for it, so that late wake-ups
  // do not add up.
  void begin(Clock::time_point asked) { free_at_ = std::max(free_at_, asked); }

  // The work takes so long on the profiled device and was done here at `done`. Returns its end, the later of the two: a machine that
  // is slower than the profiled device is not given its time back.
  Clock::time_point end_of(Milliseconds taken, Clock::time_point done) {
    free_at_ = std::max(free_at_ + std::chrono::duration_cast<Clock::duration>(taken), done);
    return free_at_;
  }

  // The work in hand was given up.
  void give_up(Clock::time_point now) { free_at_ = std::min(free_at_, now); }

 private:
  Clock::time_point free_at_{};
};

}  // namespace odmoe::emulated
