// Stand-in for NVIDIA's header of the same name: the words of the language, for an ordinary C++ compiler.
#pragma once

#ifndef ODMOE_SIMULATED_CUDA
#define ODMOE_SIMULATED_CUDA 1
#endif

#define __host__
#define __device__
#define __global__
#define __constant__
#define __managed__
// One thread runs every block, one block after another. Thread-local, so that the device finds a library's shared
// memory (its TLS block) and can poison it before a kernel.
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
