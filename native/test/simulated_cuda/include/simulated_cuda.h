// What tests ask of the stand-in itself; no real library has these.
#pragma once

#pragma GCC visibility push(default)
extern "C" {

// Calls of the runtime and the driver that this thread has made.
unsigned long long odmoe_simulated_cuda_calls(void);

// After so many more calls of cuMemMap and cuMemSetAccess, counted together, one fails with CUDA_ERROR_OUT_OF_MEMORY. Negative: none.
void odmoe_simulated_cuda_fail_mapping(long long calls);
}
#pragma GCC visibility pop
