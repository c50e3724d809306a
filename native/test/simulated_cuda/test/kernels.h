// The tests' kernels, launched by ordinary functions.
#pragma once

#include <cuda_runtime.h>

// Sums `count` floats of `input` in blocks of 256 into output[block]: shuffles in a warp, shared memory across warps.
cudaError_t launch_block_sums(const float* input, float* output, int count, cudaStream_t stream);
// The same without __syncthreads.
cudaError_t launch_racing_block_sums(const float* input, float* output, int count, cudaStream_t stream);
// output[i] = input[i] + 1.
cudaError_t launch_add_one(const float* input, float* output, int count, cudaStream_t stream);
// output = a b of 16 x 16 tiles (b column-major when `columns`).
cudaError_t launch_tile_product(const unsigned short* a, const unsigned short* b, float* output, bool columns, cudaStream_t stream);
// For each of 32 lanes 8 numbers: shfl, xor, up, down in segments of 8, a 64-bit shuffle, ballot, any, all.
constexpr int kWarpResults = 8;
cudaError_t launch_warp_operations(unsigned* output, cudaStream_t stream);
// output[linear index of the thread in the grid] = its own indices packed, for a 3-D shape.
cudaError_t launch_indices(unsigned* output, dim3 grid, dim3 block, cudaStream_t stream);
// Adds 1 to *counter in every thread; the number of threads that saw each ticket.
cudaError_t launch_tickets(unsigned* counter, unsigned* seen, unsigned threads, cudaStream_t stream);

// Wrong kernels.
cudaError_t launch_missing_thread(cudaStream_t stream);                      // half of the threads leave before __syncthreads
cudaError_t launch_missing_lane(float* output, cudaStream_t stream);         // a lane named in the mask has left
cudaError_t launch_mixed_operations(unsigned* output, cudaStream_t stream);  // lanes of a mask at different operations
cudaError_t launch_unset_shared(float* output, cudaStream_t stream);         // reads shared memory it never wrote
cudaError_t launch_misaligned(const float* input, float* output, cudaStream_t stream);  // a 16-byte load from 4 bytes on
cudaError_t launch_deep_stack(int* output, int depth, cudaStream_t stream);
