// Products for up to 8 tokens, which are bound by the reading of weights: a warp computes some rows for all tokens, with a
// vector of every row on its way before it multiplies.
#pragma once
#include "multiply_sums.h"

#if defined(__CUDACC__) || defined(ODMOE_SIMULATED_CUDA)
namespace odmoe::cuda {

inline constexpr int kFewWarps = 4;

// A lane's values of the tokens; x of a column that the matrix does not have is 0.
template <int kTokens>
struct FewTokens {
  const float* lane_values[kTokens];
  int columns_from_lane;

  __device__ __forceinline__ FewTokens(const MultiplyPart& part, int lane) : columns_from_lane(part.columns - lane) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) lane_values[t] = part.in + (t < part.n ? t : part.n - 1) * part.in_stride + lane;
  }
  template <bool kWhole>
  __device__ __forceinline__ float value(int token, int step) const {
    if (!kWhole && step * kLanes >= columns_from_lane) return 0.0f;
    return __ldg(lane_values[token] + step * kLanes);
  }
};

// kWhole: the matrix has all of these columns.
template <class Rows, int V, bool kWhole, int kRows, int kTokens>
__device__ __forceinline__ void multiply_few_steps(float (&sums)[kRows][kTokens], typename Rows::Row (&rows)[kRows],
                                                   const typename Rows::template Vector<V> (&vectors)[kRows], const Place& place,
                                                   const FewTokens<kTokens>& tokens, const float* table, int lane) {
  typename Rows::template Values<V> values[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) values[r] = Rows::template expand<V>(rows[r], vectors[r], place, lane);
#pragma unroll
  for (int s = 0; s < V; ++s) {
    float x[kTokens];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) x[t] = tokens.template value<kWhole>(t, place.first + s);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float weight = Rows::template value<V>(values[r], s, table);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) sums[r][t] = fused(x[t], weight, sums[r][t]);
    }
  }
}

template <class Rows, int V, int kRows, int kTokens>
__device__ __forceinline__ void multiply_few_piece(float (&sums)[kRows][kTokens], typename Rows::Row (&rows)[kRows], int first,
                                                   const FewTokens<kTokens>& tokens, const float* table, int lane) {
  const Place place{first, V, 0};
  typename Rows::template Vector<V> vectors[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) vectors[r] = Rows::template load<V, true>(rows[r], place, lane);
  multiply_few_steps<Rows, V, false>(sums, rows, vectors, place, tokens, table, lane);
}

// What the main pieces leave: pieces of V steps and less.
template <class Rows, int V, int kRows, int kTokens>
__device__ __forceinline__ void multiply_few_rest(float (&sums)[kRows][kTokens], typename Rows::Row (&rows)[kRows], int first,
                                                  int steps, const FewTokens<kTokens>& tokens, const float* table, int lane) {
  if ((steps & V) != 0) {
    multiply_few_piece<Rows, V>(sums, rows, first, tokens, table, lane);
    first += V;
  }
  if constexpr (V > 1) multiply_few_rest<Rows, V / 2>(sums, rows, first, steps, tokens, table, lane);
}

// kAhead: main pieces whose vectors are on their way together.
template <class Rows, int kRows, int kTokens, int kAhead>
__global__ void __launch_bounds__(kFewWarps* kWarp) multiply_few(const __grid_constant__ MultiplyLaunch launch) {
  __shared__ float table[Rows::Table::kSize];
  Rows::Table::fill(table);
  constexpr int kMain = Rows::kMain;
  const MultiplyPart& part = part_of_block(launch);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = (static_cast<int>(blockIdx.x) - part.first_block) * kFewWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (group >= row_groups(part, kRows)) return;
  typename Rows::Row rows[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    rows[r] = Rows::row(part.weights, part.columns, row_of_group(part, launch.gated, group, kRows, r));
  }
  const FewTokens<kTokens> tokens(part, lane);
  float sums[kRows][kTokens] = {};
  const int steps = steps_of(part.columns);
  const int whole = part.columns / (kMain * kLanes);
  for (int number = 0; number < whole; number += kAhead) {
    typename Rows::template Vector<kMain> vectors[kAhead][kRows];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (number + a >= whole) continue;
      const Place place{(number + a) * kMain, kMain, 0};
#pragma unroll
      for (int r = 0; r < kRows; ++r) vectors[a][r] = Rows::template load<kMain, true>(rows[r], place, lane);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (number + a >= whole) continue;
      const Place place{(number + a) * kMain, kMain, 0};
      multiply_few_steps<Rows, kMain, true>(sums, rows, vectors[a], place, tokens, table, lane);
    }
  }
  // A main piece that the last columns do not fill.
  const int full = steps / kMain;
  if (whole < full) multiply_few_piece<Rows, kMain>(sums, rows, whole * kMain, tokens, table, lane);
  multiply_few_rest<Rows, kMain / 2>(sums, rows, full * kMain, steps, tokens, table, lane);
  write_outputs<Rows>(part, launch.gated, group, 0, sums, lane);
}

}  // namespace odmoe::cuda
#endif
