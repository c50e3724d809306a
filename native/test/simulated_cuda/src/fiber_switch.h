// A change of stack: what runs goes to sleep on its own stack and another one wakes up on another.
#pragma once

#include <cstddef>

namespace odmoe_simulated {

// Where a sleeping stack goes on. Made by prepare_fiber for a stack that has not run, filled by switch_fiber otherwise.
struct FiberPlace {
  void* stack_pointer = nullptr;
};

// A stack of `size` bytes from `base` (16-byte aligned) that starts at `entry`, which never returns.
void prepare_fiber(FiberPlace& place, void* base, size_t size, void (*entry)());
void switch_fiber(FiberPlace& from, FiberPlace& to);

}  // namespace odmoe_simulated
