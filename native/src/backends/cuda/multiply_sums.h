// Products of few and of many tokens share this: reading rows, and folding and writing a warp's partial sums, ROWS x TOKENS sums in
// every lane.
#pragma once
#include "activations.h"
#include "block_rows.h"
#include "multiply_parts.h"
#include "warp_folds.h"
#include "sliced_rows.h"
#include "weight_rows.h"

#if defined(__CUDACC__) || defined(ODMOE_SIMULATED_CUDA)
namespace odmoe::cuda {

// A row for its reader.
template <class Rows>
__device__ __forceinline__ typename Rows::Row row_of(const MultiplyLaunch& launch, const MultiplyPart& part, int number) {
  if constexpr (Rows::kSliced) {
    return Rows::row(part.weights, part.lower, launch.reading, part.rows, part.columns, number);
  } else if constexpr (Rows::kBlocks) {
    return Rows::row(launch.blocks, part.weights, part.rows, part.columns, number);
  } else {
    return Rows::row(part.weights, part.columns, number);
  }
}

template <class Rows, int V, class Shared>
__device__ __forceinline__ typename Rows::template Values<V> expanded(typename Rows::Row& row,
                                                                      const typename Rows::template Vector<V>& vector,
                                                                      const Place& place, Shared& shared, int lane) {
  if constexpr (Rows::kSliced) {
    return Rows::template expand<V>(row, vector, shared, lane);
  } else if constexpr (Rows::kBlocks) {
    return Rows::template expand<V>(row, vector, place, shared, lane);
  } else {
    return Rows::template expand<V>(row, vector, place, lane);
  }
}

// Between the lanes' writes to what they share and the reads, and the other way round.
template <class Rows>
__device__ __forceinline__ void meet_lanes() {
  if constexpr (Rows::kSliced || Rows::kBlocks) __syncwarp();
}

template <class Rows, int kRows, int kTokens>
__device__ __forceinline__ void write_outputs(const MultiplyLaunch& launch, const MultiplyPart& part, int group, int first_token,
                                              const float (&sums)[kRows][kTokens], int lane) {
  constexpr int kFolds = kRows * kTokens > kWarp ? kRows * kTokens / kWarp : 1;
  constexpr int kFoldRows = kRows / kFolds;
  constexpr int kLanesEach = kWarp / (kFoldRows * kTokens);
#pragma unroll
  for (int fold = 0; fold < kFolds; ++fold) {
    float some[kFoldRows * kTokens];
#pragma unroll
    for (int i = 0; i < kFoldRows * kTokens; ++i) some[i] = sums[fold * kFoldRows + i / kTokens][i % kTokens];
    float result = fold_transposed(some, lane);
    const int slot = fold * kFoldRows + lane / kLanesEach / kTokens;
    const int token = first_token + lane / kLanesEach % kTokens;
    if constexpr (Rows::kRowScales) {
      const float* const scales = reinterpret_cast<const float*>(part.weights + row_scales_offset(part.rows, part.columns));
      result = result * __ldg(scales + row_of_group(part, launch.gated, group, kRows, slot));
    }
    int output = group * kRows + slot;
    bool written = token < part.n && lane % kLanesEach == 0;
    if (launch.gated) {
      if (part.biases != nullptr) result = result + __ldg(part.biases + row_of_group(part, true, group, kRows, slot));
      const float up = __shfl_down_sync(kFullWarp, result, kTokens * kLanesEach);
      result = glu_of(result, up, launch.glu);
      written = written && slot % 2 == 0 && output < part.rows;
      output /= 2;
    } else {
      written = written && output < part.rows;
    }
    if (written) part.out[int64_t{token} * part.out_stride + output] = result;
  }
}

}  // namespace odmoe::cuda
#endif
