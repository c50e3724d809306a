// First step of attention: scores of all positions, and the greatest score of every run of positions.
#include "attention_tiles.h"
#include "grid_launch.h"

namespace odmoe::cuda {
namespace {

// A lane's partial sums of kQueries x kPositions dot products: the lane handles the dimensions d with d mod 32 = lane.
template <int kQueries, int kBlocks>
struct Partials {
  static constexpr int kPositions = kWarp / kQueries;
  const float* vectors[kQueries];
  float held[kQueries][kBlocks > 0 ? kBlocks : 1];

  __device__ void begin(int lane, int head_dim) {
    for (int b = 0; b < kBlocks; ++b) {
      const bool there = b * kWarp + lane < head_dim;
#pragma unroll
      for (int q = 0; q < kQueries; ++q) held[q][b] = there ? vectors[q][b * kWarp + lane] : 0.0f;
    }
  }

  // Past head_dim zeros are multiplied, as in the padded dot product.
  __device__ void add_block(const float* keys, int lane, int head_dim, int block, float (&sums)[kWarp]) const {
    const int d = block * kWarp + lane;
    const bool there = d < head_dim;
    float key[kPositions];
#pragma unroll
    for (int p = 0; p < kPositions; ++p) key[p] = there ? keys[p * head_dim + d] : 0.0f;
#pragma unroll
    for (int q = 0; q < kQueries; ++q) {
      const float x = kBlocks > 0 ? held[q][kBlocks > 0 ? block : 0] : there ? vectors[q][d] : 0.0f;
#pragma unroll
      for (int p = 0; p < kPositions; ++p) sums[q * kPositions + p] = fused(x, key[p], sums[q * kPositions + p]);
    }
  }

  __device__ float scores(const float* keys, int lane, int head_dim) const {
    float sums[kWarp];
#pragma unroll
    for (int i = 0; i < kWarp; ++i) sums[i] = 0.0f;
    if (kBlocks > 0) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) add_block(keys, lane, head_dim, block, sums);
    } else {
      for (int block = 0; block * kWarp < head_dim; ++block) add_block(keys, lane, head_dim, block, sums);
    }
    return fold_transposed(sums, lane);
  }
};

// A warp scores its 32 positions; returns the greatest score that the lane's query sees. Lane q * kPositions + p has query q.
template <int kQueries, int kBlocks>
__device__ float score_positions(const AttentionWork& work, const RowRun& run, const HeadTile& tile, const QueryPlace& own,
                                 int first_position) {
  using Tile = Partials<kQueries, kBlocks>;
  constexpr int kPositions = Tile::kPositions;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int head_dim = work.shape.head_dim;
  Tile partials;
#pragma unroll
  for (int q = 0; q < kQueries; ++q) {
    const QueryPlace place(work, run, tile, q);
    partials.vectors[q] = work.queries + place.row * work.stride + int64_t{place.head} * head_dim;
  }
  partials.begin(lane, head_dim);
  const int chunk = first_position / kAttentionChunk;
  const float* const block = work.rows[run.first].key_blocks[chunk] + int64_t{tile.kv_head} * kAttentionChunk * head_dim;
  float* const scores = work.scores + (own.index(work) * work.chunks + chunk - run.first_chunk) * kAttentionChunk;
  float greatest = -INFINITY;
  for (int position = first_position; position < first_position + kWarp; position += kPositions) {
    // The block's memory goes on past the stored positions; scores of those are computed but not written.
    if (position >= run.end || position + kPositions <= run.begin) continue;
    const int index = position % kAttentionChunk;
    const float score = partials.scores(block + int64_t{index} * head_dim, lane, head_dim) * work.shape.score_scale;
    const int seen = position + lane % kPositions;
    if (own.taken && seen >= own.begin && seen < own.end) {
      scores[index + lane % kPositions] = score;
      greatest = greater(score, greatest);
    }
  }
  return greatest_of_lanes<kPositions>(greatest);
}

// Block (x, y, z): tile x of rows, some tiles of heads of one key-value head, run z of positions counted from the rows' first
// chunk. Neighbouring warps have different heads over the same positions.
template <int kQueries, int kBlocks>
__global__ void __launch_bounds__(kScoreRun) score_kernel(const AttentionWork work) {
  __shared__ float warps_greatest[kScoreWarps][kQueries];
  constexpr int kPositions = kWarp / kQueries;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int together = work.tiles_together;
  const int per_group = (work.tiles.per_group + together - 1) / together;
  const auto head_block = static_cast<int>(blockIdx.y);
  const HeadTile tile(work, head_block / per_group, head_block % per_group * together + warp % together);
  const int position_run = static_cast<int>(blockIdx.z);
  const int last = min((static_cast<int>(blockIdx.x) + 1) * work.tiles.rows, work.n);
  RowRun run;
  for (int first = static_cast<int>(blockIdx.x) * work.tiles.rows; first < last; first += run.rows) {
    run = next_run(work, first, last);
    const int begin = run.first_chunk * kAttentionChunk + position_run * kScoreRun;
    if (begin >= run.end || begin + kScoreRun <= run.begin) continue;
    const QueryPlace own(work, run, tile, lane / kPositions);
    float greatest = -INFINITY;
    const int warp_begin = begin + warp / together * together * kWarp;
    for (int part = warp_begin; part < warp_begin + together * kWarp && tile.exists(work); part += kWarp) {
      if (part >= run.end || part + kWarp <= run.begin) continue;
      greatest = greater(score_positions<kQueries, kBlocks>(work, run, tile, own, part), greatest);
    }
    if (lane % kPositions == 0) warps_greatest[warp][lane / kPositions] = greatest;
    __syncthreads();
    if (warp < together && lane % kPositions == 0 && own.taken) {
      for (int other = warp + together; other < kScoreWarps; other += together) {
        greatest = greater(warps_greatest[other][lane / kPositions], greatest);
      }
      work.greatest[own.index(work) * work.chunks * (kAttentionChunk / kScoreRun) + position_run] = greatest;
    }
    __syncthreads();
  }
}

// Number of blocks of 32 dimensions for which a kernel holds a tile's queries in registers; 0: use the kernel for any number.
template <int kQueries>
constexpr int held_blocks(int blocks) {
  const bool wide = kQueries == kMostTileQueries && (blocks == 16 || blocks == 18);
  return blocks == 2 || blocks == 4 || blocks == 8 || wide ? blocks : 0;
}

template <int kQueries>
cudaError_t launch_scores(const AttentionWork& work, dim3 grid, cudaStream_t stream) {
  void (*kernel)(AttentionWork) = score_kernel<kQueries, 0>;
  switch (held_blocks<kQueries>((work.shape.head_dim + kWarp - 1) / kWarp)) {
    case 2: kernel = score_kernel<kQueries, 2>; break;
    case 4: kernel = score_kernel<kQueries, 4>; break;
    case 8: kernel = score_kernel<kQueries, 8>; break;
    case 16: kernel = score_kernel<kQueries, held_blocks<kQueries>(16)>; break;
    case 18: kernel = score_kernel<kQueries, held_blocks<kQueries>(18)>; break;
    default: break;
  }
  return launch_grid(grid, kScoreRun, stream, kernel, work);
}

}  // namespace

cudaError_t launch_attention_scores(const AttentionWork& slice, cudaStream_t stream) {
  AttentionWork work = slice;
  work.tiles = attention_tiles(work.n, work.chunks, work.shape);
  work.tiles_together = tiles_of_score_block(work.n, work.chunks, work.shape, work.tiles);
  const int per_group = (work.tiles.per_group + work.tiles_together - 1) / work.tiles_together;
  const dim3 grid = work.grid(per_group, kAttentionChunk / kScoreRun);
  switch (work.tiles.queries) {
    case 1: return launch_scores<1>(work, grid, stream);
    case 2: return launch_scores<2>(work, grid, stream);
    case 4: return launch_scores<4>(work, grid, stream);
    default: return launch_scores<8>(work, grid, stream);
  }
}

}  // namespace odmoe::cuda
