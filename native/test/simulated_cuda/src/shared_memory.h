// The shared memory of the kernels in one library: on the device thread, that library's thread-local block.
#pragma once

namespace odmoe_simulated {

// Fills the shared memory that `kernel` may use with 0xff bytes: so a read before a write does not give a convenient zero. Called
// on the device thread. A library's initialised thread-local variables are left alone.
void poison_shared_memory(const void* kernel);

}  // namespace odmoe_simulated
