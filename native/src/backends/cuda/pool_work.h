// Launches of attention to pools of positions (odmoe/backend.h, PoolWork and SeenWork).
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels.h"

namespace odmoe::cuda {

struct PoolJob {
  float* out = nullptr;
  const DeviceAttentionRow* rows = nullptr;
  const float* gate_biases = nullptr;
  int n = 0;
  int size = 0;
  int positions = 0;
  bool overlaps = false;
};
cudaError_t launch_pool(const PoolJob& job, cudaStream_t stream);

struct SeenJob {
  float* out = nullptr;
  int64_t out_stride = 0;
  const DeviceAttentionRow* rows = nullptr;
  const int32_t* chosen = nullptr;
  int n = 0;
  int size = 0;
  int positions = 0;
  int entries = 0;
  int window = 0;
  bool whole_pools = false;
  int most = 0;  // vectors of the row that sees most
};
cudaError_t launch_gather_seen(const SeenJob& job, cudaStream_t stream);

}  // namespace odmoe::cuda
