// Limits how late a thread may wake from a timed wait.
#pragma once
#if defined(__linux__)
#include <sys/prctl.h>
#endif

namespace odmoe {

// Linux may delay a thread's timers by up to 50 microseconds to group them. This call stops that for the calling thread.
inline void use_precise_timers() {
#if defined(__linux__)
  constexpr unsigned long kSlackNs = 1;
  prctl(PR_SET_TIMERSLACK, kSlackNs, 0UL, 0UL, 0UL);
#endif
}

}  // namespace odmoe
