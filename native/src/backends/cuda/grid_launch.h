// One launch of a kernel over a grid of blocks.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace odmoe::cuda {

template <typename... Parameters, typename... Arguments>
cudaError_t launch_grid(dim3 grid, unsigned threads, cudaStream_t stream, void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchConfig_t configuration = {};
  configuration.gridDim = grid;
  configuration.blockDim = dim3(threads, 1, 1);
  configuration.stream = stream;
  return cudaLaunchKernelEx(&configuration, kernel, static_cast<Parameters>(arguments)...);
}

// Largest size of a grid's second and third dimensions.
inline constexpr int kMostGridRows = 65535;

// launch(first row, rows) for all rows, as many at a time as a grid's second dimension allows.
template <class Launch>
cudaError_t launch_row_slices(int n, Launch&& launch) {
  for (int first = 0; first < n; first += kMostGridRows) {
    const cudaError_t error = launch(int64_t{first}, n - first < kMostGridRows ? n - first : kMostGridRows);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

inline unsigned blocks_for(int64_t elements, int64_t per_block) {
  return static_cast<unsigned>((elements + per_block - 1) / per_block);
}

}  // namespace odmoe::cuda
