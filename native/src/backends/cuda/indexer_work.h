// Launches by which rows choose positions (odmoe/backend.h, ChoiceWork).
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels.h"

namespace odmoe::cuda {

// Rows whose position is less than `count` are left out.
struct ChoiceJob {
  int32_t* chosen = nullptr;
  float* scores = nullptr;  // scratch: n x width
  const DeviceAttentionRow* rows = nullptr;
  const float* queries = nullptr;
  const float* weights = nullptr;
  int64_t width = 0;  // at least as many as the furthest row's positions
  int n = 0;          // at most kMostGridRows
  int heads = 0;
  int head_dim = 0;
  int count = 0;
};
cudaError_t launch_choose_positions(const ChoiceJob& job, cudaStream_t stream);

// Rows that have no more positions than `blocks` blocks are left out.
struct BlockChoiceJob {
  int32_t* chosen = nullptr;
  float* scores = nullptr;        // scratch: n x heads x width
  float* block_scores = nullptr;  // scratch: n x heads x width_blocks
  int32_t* best = nullptr;        // scratch: n x heads x blocks
  const DeviceAttentionRow* rows = nullptr;
  const float* queries = nullptr;
  int64_t width = 0;         // at least as many as the furthest row's positions
  int64_t width_blocks = 0;  // blocks of `width` positions
  int n = 0;                 // n x heads is at most kMostGridRows
  int heads = 0;
  int head_dim = 0;
  int block_size = 0;
  int blocks = 0;
  int local_blocks = 0;
};
cudaError_t launch_choose_blocks(const BlockChoiceJob& job, cudaStream_t stream);

struct GatherJob {
  float* out = nullptr;
  int64_t out_stride = 0;
  const DeviceAttentionRow* rows = nullptr;
  const int32_t* chosen = nullptr;
  int n = 0;
  int count = 0;
  int size = 0;
};
cudaError_t launch_gather_keys(const GatherJob& job, cudaStream_t stream);

}  // namespace odmoe::cuda
