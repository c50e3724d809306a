// Runs a kernel on the calling thread: its blocks one after another, a block's threads as fibers.
#pragma once

#include <cstdint>

#include "cuda_runtime.h"

namespace odmoe_simulated {

// `seed` draws the order of the blocks and of a block's warps and lanes; 0: from the first to the last.
// Ends the process with a message when threads wait for one another in a way that cannot end.
void run_kernel(const KernelCall& call, dim3 grid, dim3 block, uint64_t seed);

// Describes, for a message, the code that runs on the device thread now: kernel, block and thread. False outside a kernel.
bool describe_running(char* text, unsigned long size);

// Writes the place of a kernel as "library+0x1234", for messages (addr2line finds its name).
void describe_code(const void* address, char* text, unsigned long size);

}  // namespace odmoe_simulated
