// Products for up to 8 tokens, whose speed the reading of weights limits: a warp computes some rows for all tokens, and loads
// further vectors of every row while it multiplies.
#pragma once
#include <type_traits>

#include "multiply_sums.h"

#if defined(__CUDACC__) || defined(ODMOE_SIMULATED_CUDA)
namespace odmoe::cuda {

inline constexpr int kFewWarps = 4;
// Values of tokens that a lane reads before it waits for the corresponding weights.
inline constexpr int kFewValues = 8;
// The remaining pieces behind the main pieces are loaded before the last main pieces are multiplied, if they have at least this
// many steps. Smaller remaining pieces are rare, and early loads of them would cost registers in every case.
inline constexpr int kFewRest = 4;

// A lane's values of the tokens from the next step on; x is 0 for columns beyond the matrix.
template <int kTokens>
struct FewTokens {
  const float* next[kTokens];
  int columns_left;

  __device__ __forceinline__ FewTokens(const MultiplyPart& part, int lane) : columns_left(part.columns - lane) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) next[t] = part.token(t < part.n ? t : part.n - 1) + lane;
  }
  template <bool kWhole>
  __device__ __forceinline__ float value(int token, int step) const {
    if (!kWhole && step * kLanes >= columns_left) return 0.0f;
    return __ldg(next[token] + step * kLanes);
  }
  __device__ __forceinline__ void advance(int steps) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) next[t] += steps * kLanes;
    columns_left -= steps * kLanes;
  }
};

// Shared memory: a block's table, and what a warp's lanes share of each of its rows.
template <class Rows>
struct FewShared {
  using OfRow = typename Rows::template Shared<Rows::kMain>;
  const float* table;
  OfRow* rows;
};

template <class Rows, int V, int kRows>
__device__ __forceinline__ void load_few(typename Rows::template Vector<V> (&vectors)[kRows],
                                         const typename Rows::Row (&rows)[kRows], int first, int lane) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) vectors[r] = Rows::template load<V, true>(rows[r], {first, V, 0}, lane);
}

// Multiplies the tokens' next V steps. kWhole: the matrix has all columns of these steps.
template <class Rows, int V, bool kWhole, int kRows, int kTokens>
__device__ __forceinline__ void multiply_few_steps(float (&sums)[kRows][kTokens], typename Rows::Row (&rows)[kRows],
                                                   const typename Rows::template Vector<V> (&vectors)[kRows], int first,
                                                   FewTokens<kTokens>& tokens, const FewShared<Rows>& shared, int lane) {
  constexpr int kAtOnce = V * kTokens <= kFewValues ? V : kTokens < kFewValues ? kFewValues / kTokens : 1;
  float x[kAtOnce][kTokens];
  const auto read = [&](int from) {
#pragma unroll
    for (int i = 0; i < kAtOnce * kTokens; ++i)
      x[i / kTokens][i % kTokens] = tokens.template value<kWhole>(i % kTokens, from + i / kTokens);
  };
  read(0);
  typename Rows::template Values<V> values[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) values[r] = expanded<Rows, V>(rows[r], vectors[r], {first, V, 0}, shared.rows[r], lane);
  meet_lanes<Rows>();
#pragma unroll
  for (int s = 0; s < V; ++s) {
    if (s > 0 && s % kAtOnce == 0) read(s);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float weight = Rows::template value<V>(values[r], s, shared.table);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) sums[r][t] = fused(x[s % kAtOnce][t], weight, sums[r][t]);
    }
  }
  meet_lanes<Rows>();
  tokens.advance(V);
}

// The remaining pieces behind the main pieces, of V, V / 2, ... kLeast steps, at most one of each. Their vectors are loaded
// together.
template <class Rows, int V, int kLeast, int kRows, bool kSome = (V >= kLeast)>
struct FewRest {
  typename Rows::template Vector<V> vectors[kRows];
  FewRest<Rows, V / 2, kLeast, kRows> smaller;

  __device__ __forceinline__ void load(const typename Rows::Row (&rows)[kRows], int first, int steps, int lane) {
    if ((steps & V) != 0) load_few<Rows, V>(vectors, rows, first, lane);
    smaller.load(rows, first + (steps & V), steps, lane);
  }
  template <int kTokens>
  __device__ __forceinline__ void multiply(float (&sums)[kRows][kTokens], typename Rows::Row (&rows)[kRows], int& first, int steps,
                                           FewTokens<kTokens>& tokens, const FewShared<Rows>& shared, int lane) const {
    if ((steps & V) != 0) multiply_few_steps<Rows, V, false>(sums, rows, vectors, first, tokens, shared, lane);
    first += steps & V;
    smaller.multiply(sums, rows, first, steps, tokens, shared, lane);
  }
};

template <class Rows, int V, int kLeast, int kRows>
struct FewRest<Rows, V, kLeast, kRows, false> {
  __device__ __forceinline__ void load(const typename Rows::Row (&)[kRows], int, int, int) {}
  template <int kTokens>
  __device__ __forceinline__ void multiply(float (&)[kRows][kTokens], typename Rows::Row (&)[kRows], int&, int, FewTokens<kTokens>&,
                                           const FewShared<Rows>&, int) const {}
};

// Calls act(0), act(1), ... act(kCount - 1) with the numbers as types: CUDA 11.8 does not unroll every loop that has the pragma.
template <int kCount, class Act>
__device__ __forceinline__ void for_each_number(const Act& act) {
  if constexpr (kCount > 0) {
    for_each_number<kCount - 1>(act);
    act(std::integral_constant<int, kCount - 1>());
  }
}

// kAhead: number of main pieces whose vectors are in flight together; each is loaded when the piece kAhead before it has been
// multiplied. 0: a piece is loaded just before its use.
template <class Rows, int kRows, int kTokens, int kAhead>
__global__ void __launch_bounds__(kFewWarps* kWarp) multiply_few(const __grid_constant__ MultiplyLaunch launch) {
  __shared__ float table[Rows::Table::kSize];
  __shared__ typename FewShared<Rows>::OfRow of_rows[kFewWarps][kRows];
  Rows::Table::fill(table);
  const FewShared<Rows> shared{table, of_rows[threadIdx.x / kWarp]};
  constexpr int kMain = Rows::kMain;
  static_assert(kMain >= kFewRest);
  const MultiplyPart& part = part_of_block(launch);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = (static_cast<int>(blockIdx.x) - part.first_block) * kFewWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (group >= row_groups(part, kRows)) return;
  typename Rows::Row rows[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    rows[r] = row_of<Rows>(launch, part, row_of_group(part, launch.gated, group, kRows, r));
  }
  FewTokens<kTokens> tokens(part, lane);
  const int steps = steps_of(part.columns);
  const int whole = part.columns / (kMain * kLanes) * kMain;
  typename Rows::template Vector<kMain> vectors[kAhead > 0 ? kAhead : 1][kRows];
  FewRest<Rows, kMain / 2, kFewRest, kRows> rest;
  float sums[kRows][kTokens] = {};
  int first = 0;   // the next step to multiply
  int loaded = 0;  // the next step to load
  const auto load_next = [&](auto& slot) {
    if (loaded >= whole) return;
    load_few<Rows, kMain>(slot, rows, loaded, lane);
    loaded += kMain;
  };
  for_each_number<kAhead>([&](auto a) { load_next(vectors[a.value]); });
  if (kAhead > 0 && loaded >= whole) rest.load(rows, loaded, steps, lane);
  Rows::start(rows);
  while (first < whole) {
    if constexpr (kAhead == 0) {
      load_few<Rows, kMain>(vectors[0], rows, first, lane);
      multiply_few_steps<Rows, kMain, true>(sums, rows, vectors[0], first, tokens, shared, lane);
      first += kMain;
    }
    for_each_number<kAhead>([&](auto a) {
      if (first >= whole) return;
      multiply_few_steps<Rows, kMain, true>(sums, rows, vectors[a.value], first, tokens, shared, lane);
      first += kMain;
      load_next(vectors[a.value]);
    });
    if (kAhead > 0 && loaded >= whole && first < whole) rest.load(rows, loaded, steps, lane);
  }
  // The last main piece, which the last columns do not fill.
  if (first + kMain <= steps) {
    load_few<Rows, kMain>(vectors[0], rows, first, lane);
    multiply_few_steps<Rows, kMain, false>(sums, rows, vectors[0], first, tokens, shared, lane);
    first += kMain;
  }
  if (kAhead == 0) rest.load(rows, first, steps, lane);
  rest.multiply(sums, rows, first, steps, tokens, shared, lane);
  FewRest<Rows, kFewRest / 2, 1, kRows> smaller;
  smaller.load(rows, first, steps, lane);
  smaller.multiply(sums, rows, first, steps, tokens, shared, lane);
  write_outputs<Rows>(launch, part, group, 0, sums, lane);
}

}  // namespace odmoe::cuda
#endif
