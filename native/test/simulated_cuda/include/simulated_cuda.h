// Functions of the stand-in itself, for tests; no real library has these.
#pragma once

#pragma GCC visibility push(default)
extern "C" {

// Calls of the runtime and the driver that this thread has made.
unsigned long long odmoe_simulated_cuda_calls(void);

// After `calls` more calls of cuMemMap and cuMemSetAccess together, one fails with CUDA_ERROR_OUT_OF_MEMORY. Negative: none fails.
void odmoe_simulated_cuda_fail_mapping(long long calls);
}
#pragma GCC visibility pop
