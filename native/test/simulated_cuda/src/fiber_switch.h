// Switches stacks: the running fiber stops on its stack, and another fiber continues on its own.
#pragma once

#include <cstddef>

namespace odmoe_simulated {

// The place at which a stopped fiber continues. prepare_fiber makes it for a stack that has not run, and switch_fiber fills it
// otherwise.
struct FiberPlace {
  void* stack_pointer = nullptr;
};

// A stack of `size` bytes from `base` (16-byte aligned) that starts at `entry`, which never returns.
void prepare_fiber(FiberPlace& place, void* base, size_t size, void (*entry)());
void switch_fiber(FiberPlace& from, FiberPlace& to);

}  // namespace odmoe_simulated
