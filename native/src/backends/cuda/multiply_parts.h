// The products of one launch, and the outputs of each warp.
#pragma once
#include "block_layout.h"
#include "kernels.h"
#include "weight_layout.h"

namespace odmoe::cuda {

// A job; its blocks begin at first_block of the launch.
struct MultiplyPart {
  const uint8_t* weights;
  const uint8_t* lower;
  const float* in;
  float* out;
  const float* biases;
  int in_stride;
  int out_stride;
  int rows;
  int columns;
  int n;
  int first_block;

  ODMOE_BOTH const float* token(int number) const { return in + int64_t{number} * in_stride; }
};

// A kernel's parameter: all parts have one format and one reading.
struct MultiplyLaunch {
  MultiplyPart parts[kMostMultiplyJobs];
  int count;
  bool gated;
  SliceReading reading;
  GluShape glu;      // only for gated products
  BlockForm blocks;  // only for block formats
};
static_assert(sizeof(MultiplyLaunch) <= 4096, "what a kernel takes");

// Groups of `rows` rows of weights that share a warp. A group of gated products has pairs of a gate row and its up row.
ODMOE_BOTH int row_groups(const MultiplyPart& part, int rows) { return (part.rows + rows - 1) / rows; }

// Row `slot` of a group; beyond the matrix: the matrix's last row.
ODMOE_BOTH int row_of_group(const MultiplyPart& part, bool gated, int group, int group_rows, int slot) {
  if (!gated) {
    const int row = group * group_rows + slot;
    return row < part.rows ? row : part.rows - 1;
  }
  const int half = part.rows / 2;
  const int output = (group * group_rows + slot) / 2;
  return (output < half ? output : half - 1) + (slot % 2 == 0 ? 0 : half);
}

#if defined(__CUDACC__) || defined(ODMOE_SIMULATED_CUDA)
__device__ __forceinline__ const MultiplyPart& part_of_block(const MultiplyLaunch& launch) {
  // Finds the last part that begins at or before the block.
  int number = 0;
  int behind = launch.count;
  while (behind - number > 1) {
    const int middle = (number + behind) / 2;
    if (static_cast<int>(blockIdx.x) >= launch.parts[middle].first_block) {
      number = middle;
    } else {
      behind = middle;
    }
  }
  return launch.parts[number];
}
#endif

}  // namespace odmoe::cuda
