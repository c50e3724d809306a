#include "kernels.h"

#include <cuda_bf16.h>
#include <mma.h>

namespace {

__global__ void __launch_bounds__(256) block_sums(const float* __restrict__ input, float* __restrict__ output, int count) {
  __shared__ float partial[8];
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  float sum = index < count ? input[index] : 0.0f;
  for (int step = 16; step > 0; step /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, step));
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    sum = 0.0f;
    for (float part : partial) sum = __fadd_rn(sum, part);
    output[blockIdx.x] = sum;
  }
}

__global__ void racing_block_sums(const float* input, float* output, int count) {
  __shared__ float partial[256];
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  partial[threadIdx.x] = index < count ? input[index] : 0.0f;
  if (threadIdx.x != 100) return;
  float sum = 0.0f;
  for (float part : partial) sum = __fadd_rn(sum, part);
  output[blockIdx.x] = sum;
}

__global__ void add_one(const float* input, float* output, int count) {
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (index < count) output[index] = input[index] + 1.0f;
}

template <typename LayoutB>
__global__ void tile_product(const __nv_bfloat16* a, const __nv_bfloat16* b, float* output) {
  namespace wmma = nvcuda::wmma;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, LayoutB> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  wmma::load_matrix_sync(left, a, 16);
  wmma::load_matrix_sync(right, b, 16);
  wmma::mma_sync(sum, left, right, sum);
  wmma::store_matrix_sync(output, sum, 16, wmma::mem_row_major);
}

__global__ void warp_operations(unsigned* output) {
  constexpr unsigned kAll = 0xffffffffu;
  const unsigned lane = threadIdx.x;
  unsigned* to = output + lane * kWarpResults;
  to[0] = __shfl_sync(kAll, lane * 10, 3, 8);
  to[1] = __shfl_xor_sync(kAll, lane * 10, 5);
  to[2] = __shfl_up_sync(kAll, lane * 10, 2, 8);
  to[3] = __shfl_down_sync(kAll, lane * 10, 2, 8);
  to[4] = static_cast<unsigned>(__shfl_sync(kAll, (0x100000000ull * lane) + 7, 9) >> 32);
  to[5] = __ballot_sync(kAll, lane % 3 == 0);
  to[6] = static_cast<unsigned>(__any_sync(kAll, lane == 31)) + 2u * static_cast<unsigned>(__any_sync(kAll, lane == 32));
  // The two halves of a warp by themselves.
  const unsigned half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  to[7] = lane < 16 ? static_cast<unsigned>(__all_sync(half, lane < 16)) : __shfl_down_sync(half, lane, 1, 16);
}

__global__ void indices(unsigned* output) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  output[block * blockDim.x * blockDim.y * blockDim.z + thread] =
      threadIdx.x | threadIdx.y << 5 | threadIdx.z << 10 | blockIdx.x << 15 | blockIdx.y << 20 | blockIdx.z << 25;
}

__global__ void tickets(unsigned* counter, unsigned* seen) { atomicAdd(&seen[atomicAdd(counter, 1u)], 1u); }

__global__ void mixed_operations(unsigned* output) {
  output[threadIdx.x] = threadIdx.x < 16 ? __ballot_sync(0xffffffffu, 1) : __shfl_sync(0xffffffffu, threadIdx.x, 0);
}

__global__ void unset_shared(float* output) {
  __shared__ float values[32];
  if (threadIdx.x != 7) values[threadIdx.x] = 1.0f;
  __syncthreads();
  output[threadIdx.x] = values[threadIdx.x];
}

__global__ void misaligned(const float* input, float* output) {
  const uint4 loaded = *reinterpret_cast<const uint4*>(input + 1);
  output[threadIdx.x] = __uint_as_float(loaded.x);
}

__device__ int descend(int depth) {
  volatile char frame[1024] = {};
  frame[depth % 1024] = 1;
  return depth == 0 ? frame[0] : descend(depth - 1) + frame[depth % 1024];
}

__global__ void deep_stack(int* output, int depth) { output[threadIdx.x] = descend(depth); }

__global__ void missing_thread() {
  if (threadIdx.x >= blockDim.x / 2) return;
  __syncthreads();
}

__global__ void missing_lane(float* output) {
  if (threadIdx.x == 5) return;
  output[threadIdx.x] = __shfl_down_sync(0xffffffffu, static_cast<float>(threadIdx.x), 1);
}

cudaLaunchConfig_t shape(unsigned blocks, unsigned threads, cudaStream_t stream) {
  cudaLaunchConfig_t configuration = {};
  configuration.gridDim = dim3(blocks);
  configuration.blockDim = dim3(threads);
  configuration.stream = stream;
  return configuration;
}

}  // namespace

cudaError_t launch_block_sums(const float* input, float* output, int count, cudaStream_t stream) {
  const cudaLaunchConfig_t configuration = shape(static_cast<unsigned>(count + 255) / 256, 256, stream);
  return cudaLaunchKernelEx(&configuration, block_sums, input, output, count);
}

cudaError_t launch_add_one(const float* input, float* output, int count, cudaStream_t stream) {
  const cudaLaunchConfig_t configuration = shape(static_cast<unsigned>(count + 127) / 128, 128, stream);
  return cudaLaunchKernelEx(&configuration, add_one, input, output, count);
}

cudaError_t launch_tile_product(const unsigned short* a, const unsigned short* b, float* output, bool columns,
                                cudaStream_t stream) {
  const cudaLaunchConfig_t configuration = shape(1, 32, stream);
  const auto* left = reinterpret_cast<const __nv_bfloat16*>(a);
  const auto* right = reinterpret_cast<const __nv_bfloat16*>(b);
  return columns ? cudaLaunchKernelEx(&configuration, tile_product<nvcuda::wmma::col_major>, left, right, output)
                 : cudaLaunchKernelEx(&configuration, tile_product<nvcuda::wmma::row_major>, left, right, output);
}

cudaError_t launch_missing_thread(cudaStream_t stream) {
  const cudaLaunchConfig_t configuration = shape(2, 128, stream);
  return cudaLaunchKernelEx(&configuration, missing_thread);
}

cudaError_t launch_missing_lane(float* output, cudaStream_t stream) {
  const cudaLaunchConfig_t configuration = shape(1, 32, stream);
  return cudaLaunchKernelEx(&configuration, missing_lane, output);
}

cudaError_t launch_racing_block_sums(const float* input, float* output, int count, cudaStream_t stream) {
  const cudaLaunchConfig_t configuration = shape(static_cast<unsigned>(count + 255) / 256, 256, stream);
  return cudaLaunchKernelEx(&configuration, racing_block_sums, input, output, count);
}

cudaError_t launch_warp_operations(unsigned* output, cudaStream_t stream) {
  const cudaLaunchConfig_t configuration = shape(1, 32, stream);
  return cudaLaunchKernelEx(&configuration, warp_operations, output);
}

cudaError_t launch_indices(unsigned* output, dim3 grid, dim3 block, cudaStream_t stream) {
  cudaLaunchConfig_t configuration = shape(1, 1, stream);
  configuration.gridDim = grid;
  configuration.blockDim = block;
  return cudaLaunchKernelEx(&configuration, indices, output);
}

cudaError_t launch_tickets(unsigned* counter, unsigned* seen, unsigned threads, cudaStream_t stream) {
  const cudaLaunchConfig_t configuration = shape(threads / 64, 64, stream);
  return cudaLaunchKernelEx(&configuration, tickets, counter, seen);
}

cudaError_t launch_mixed_operations(unsigned* output, cudaStream_t stream) {
  const cudaLaunchConfig_t configuration = shape(1, 32, stream);
  return cudaLaunchKernelEx(&configuration, mixed_operations, output);
}

cudaError_t launch_unset_shared(float* output, cudaStream_t stream) {
  const cudaLaunchConfig_t configuration = shape(1, 32, stream);
  return cudaLaunchKernelEx(&configuration, unset_shared, output);
}

cudaError_t launch_misaligned(const float* input, float* output, cudaStream_t stream) {
  const cudaLaunchConfig_t configuration = shape(1, 32, stream);
  return cudaLaunchKernelEx(&configuration, misaligned, input, output);
}

cudaError_t launch_deep_stack(int* output, int depth, cudaStream_t stream) {
  const cudaLaunchConfig_t configuration = shape(1, 32, stream);
  return cudaLaunchKernelEx(&configuration, deep_stack, output, depth);
}
