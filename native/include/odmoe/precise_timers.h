// How late a thread may wake from a timed wait.
#pragma once
#if defined(__linux__)
#include <sys/prctl.h>
#endif

namespace odmoe {

// Linux lets timers of a thread come up to 50 microseconds late so that several fall together; those of the calling thread do not.
inline void use_precise_timers() {
#if defined(__linux__)
  constexpr unsigned long kSlackNs = 1;
  prctl(PR_SET_TIMERSLACK, kSlackNs, 0UL, 0UL, 0UL);
#endif
}

}  // namespace odmoe
