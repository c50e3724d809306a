// Keeps the memory of this process, which holds prompts, out of core files.
#pragma once

namespace odmoe {

// Linux: the system writes no core file of this process and of those that it starts, and hands no memory to a program that
// collects core dumps. Such a program may still get registers. Other systems: does nothing.
void leave_no_core();

}  // namespace odmoe
