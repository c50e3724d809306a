// Products for many tokens (prefill), whose speed multiply-adds limit: a warp computes a tile of rows x 8 tokens in registers. The
// block's warps share the tokens' values, which are staged in shared memory some steps at a time: [4 tokens][step][lane] of 4
// floats.
#pragma once
#include "multiply_sums.h"

#if defined(__CUDACC__) || defined(ODMOE_SIMULATED_CUDA)
namespace odmoe::cuda {

inline constexpr int kManyWarps = 8;
inline constexpr int kManyTileTokens = 8;
inline constexpr int kManyTokenTiles = 2;  // token tiles of a block
inline constexpr int kManyRowTiles = kManyWarps / kManyTokenTiles;
inline constexpr int kManyBlockTokens = kManyTileTokens * kManyTokenTiles;
inline constexpr int kManySteps = 4;  // most steps that are staged at a time
inline constexpr int kManyQuads = kManyBlockTokens / 4;

struct StagedTokens {
  float4 values[kManyQuads][kManySteps][kWarp];
};

// Memory that a warp's lanes share for a row.
template <class Rows>
using ManyShared = typename Rows::template Shared<kManySteps>;

// All warps call this; it stages steps [first, first + V).
template <int V>
__device__ __forceinline__ void stage_tokens(StagedTokens& staged, const MultiplyPart& part, int first_token, int first, int warp,
                                             int lane) {
  // Not unrolled: registers are the scarcest resource here.
#pragma unroll 1
  for (int i = 0; i < (V * kManyQuads + kManyWarps - 1) / kManyWarps; ++i) {
    const int place = i * kManyWarps + warp;
    if (place >= V * kManyQuads) continue;
    const int quad = place % kManyQuads;
    const int column = (first + place / kManyQuads) * kLanes + lane;
    float x[4];
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const int token = first_token + quad * 4 + t;
      x[t] = column < part.columns ? __ldg(part.token(token < part.n ? token : part.n - 1) + column) : 0.0f;
    }
    staged.values[quad][place / kManyQuads][lane] = make_float4(x[0], x[1], x[2], x[3]);
  }
}

template <class Rows, int V, int kRows>
__device__ __forceinline__ void multiply_staged(float (&sums)[kRows][kManyTileTokens], typename Rows::Row (&rows)[kRows],
                                                const typename Rows::template Vector<V> (&vectors)[kRows], const Place& place,
                                                const StagedTokens& staged, int token_tile, const float* table,
                                                ManyShared<Rows> (&shared)[kRows], int lane) {
  typename Rows::template Values<V> values[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) values[r] = expanded<Rows, V>(rows[r], vectors[r], place, shared[r], lane);
  meet_lanes<Rows>();
#pragma unroll
  for (int s = 0; s < V; ++s) {
    const float4 a = staged.values[token_tile * 2][s][lane];
    const float4 b = staged.values[token_tile * 2 + 1][s][lane];
    const float x[kManyTileTokens] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float weight = Rows::template value<V>(values[r], s, table);
#pragma unroll
      for (int t = 0; t < kManyTileTokens; ++t) sums[r][t] = fused(x[t], weight, sums[r][t]);
    }
  }
}

// A warp's tile of one block.
template <class Rows, int kRows>
class ManyTile {
 public:
  __device__ __forceinline__ ManyTile(const MultiplyLaunch& launch, StagedTokens* staged, const float* table,
                                      ManyShared<Rows> (&shared)[kManyWarps][kRows])
      : launch_(launch),
        part_(part_of_block(launch)),
        staged_(staged),
        table_(table),
        shared_(shared[threadIdx.x / kWarp]),
        lane_(static_cast<int>(threadIdx.x) % kWarp),
        warp_(static_cast<int>(threadIdx.x) / kWarp) {
    const int block = static_cast<int>(blockIdx.x) - part_.first_block;
    const int token_blocks = (part_.n + kManyBlockTokens - 1) / kManyBlockTokens;
    // Blocks that share weights are neighbours, so that all but the first read them from the second-level cache.
    first_token_ = block % token_blocks * kManyBlockTokens;
    group_ = block / token_blocks * kManyRowTiles + warp_ / kManyTokenTiles;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      rows_[r] = row_of<Rows>(launch, part_, row_of_group(part_, launch.gated, group_, kRows, r));
    }
    Rows::start(rows_);
  }

  __device__ __forceinline__ void run() {
    constexpr int kSteps = Rows::kMain < kManySteps ? Rows::kMain : kManySteps;
    const int steps = steps_of(part_.columns);
    int first = 0;
    for (int size = Rows::kMain; size >= kSteps; size /= 2) {
      const int end = size == Rows::kMain ? steps / size * size : first + (steps & size);
      for (; first < end; first += size) {
        for (int skipped = 0; skipped < size; skipped += kSteps) multiply<kSteps>({first, size, skipped});
      }
    }
    rest<kSteps / 2>(first, steps);
    write_outputs<Rows>(launch_, part_, group_, first_token_ + token_tile() * kManyTileTokens, sums_, lane_);
  }

 private:
  __device__ int token_tile() const { return warp_ % kManyTokenTiles; }

  template <int V>
  __device__ __forceinline__ void multiply(const Place& place) {
    typename Rows::template Vector<V> vectors[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) vectors[r] = Rows::template load<V, false>(rows_[r], place, lane_);
    // Two buffers are used in turn: a thread that writes one has passed the barrier behind its last read.
    StagedTokens& staged = staged_[buffer_];
    buffer_ ^= 1;
    stage_tokens<V>(staged, part_, first_token_, place.first + place.skipped, warp_, lane_);
    __syncthreads();
    multiply_staged<Rows, V>(sums_, rows_, vectors, place, staged, token_tile(), table_, shared_, lane_);
  }

  template <int V>
  __device__ __forceinline__ void rest(int first, int steps) {
    if ((steps & V) != 0) {
      multiply<V>({first, V, 0});
      first += V;
    }
    if constexpr (V > 1) rest<V / 2>(first, steps);
  }

  const MultiplyLaunch& launch_;
  const MultiplyPart& part_;
  StagedTokens* const staged_;
  const float* const table_;
  ManyShared<Rows> (&shared_)[kRows];
  const int lane_;
  const int warp_;
  int first_token_;
  int group_;
  int buffer_ = 0;
  typename Rows::Row rows_[kRows];
  float sums_[kRows][kManyTileTokens] = {};
};

// kBlocks: blocks of a multiprocessor for which its registers must suffice.
template <class Rows, int kRows, int kBlocks>
__global__ void __launch_bounds__(kManyWarps* kWarp, kBlocks) multiply_many(const __grid_constant__ MultiplyLaunch launch) {
  __shared__ StagedTokens staged[2];
  __shared__ float table[Rows::Table::kSize];
  __shared__ ManyShared<Rows> of_rows[kManyWarps][kRows];
  Rows::Table::fill(table);
  ManyTile<Rows, kRows> tile(launch, staged, table, of_rows);
  tile.run();
}

}  // namespace odmoe::cuda
#endif
