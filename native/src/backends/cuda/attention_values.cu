// Second step of attention: per chunk the exponentials of its scores, their sum, and the values weighed with them.
#include "attention_tiles.h"
#include "grid_launch.h"

namespace odmoe::cuda {
namespace {

constexpr int kMostValueThreads = 256;

// What the tile's queries weigh the values of one chunk with, and which positions of the chunk each of them sees.
template <int kQueries>
struct ChunkWeights {
  __align__(16) float terms[kQueries][kAttentionChunk];
  float denominators[kQueries];
  int begins[kQueries];
  int ends[kQueries];
};

// A warp's work for one query.
template <int kQueries>
__device__ void exponentiate(const AttentionWork& work, const RowRun& run, const HeadTile& tile, int chunk, int query,
                             ChunkWeights<kQueries>& weights) {
  constexpr int kRuns = kAttentionChunk / kScoreRun;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const QueryPlace place(work, run, tile, query);
  const int64_t index = place.index(work);
  const int origin = run.first_chunk * kAttentionChunk;
  const int start = origin + chunk * kAttentionChunk;
  const int begin = place.taken ? min(max(place.begin - start, 0), kAttentionChunk) : 0;
  const int end = place.taken ? min(max(place.end - start, 0), kAttentionChunk) : 0;
  float scores[kAttentionChunk / kWarp];
#pragma unroll
  for (int i = 0; i < kAttentionChunk / kWarp; ++i) {
    const int at = i * kWarp + lane;
    const bool seen = at >= begin && at < end;
    scores[i] = seen ? work.scores[(index * work.chunks + chunk) * kAttentionChunk + at] : 0.0f;
  }
  float greatest = -INFINITY;
  const int last_run = (place.end - 1 - origin) / kScoreRun;
  for (int i = (place.begin - origin) / kScoreRun + lane; i <= last_run; i += kWarp) {
    greatest = greater(work.greatest[index * work.chunks * kRuns + i], greatest);
  }
  greatest = greatest_of_lanes<kWarp>(greatest);
  float partial = 0.0f;
#pragma unroll
  for (int i = 0; i < kAttentionChunk / kWarp; ++i) {
    const int at = i * kWarp + lane;
    const float term = at >= begin && at < end ? exponential(scores[i] - greatest) : 0.0f;
    weights.terms[query][at] = term;
    partial = partial + term;
  }
  const float denominator = fold_lanes(partial);
  if (lane != 0) return;
  weights.denominators[query] = denominator;
  weights.begins[query] = begin;
  weights.ends[query] = end;
  if (place.taken && work.chunks > 1) work.denominators[index * work.chunks + chunk] = denominator;
}

// sums[q] += term * value over the chunk, by rising position, for the dimension that begins at `values`.
// [begin, end): what any query sees; [shared_begin, shared_end): what all see.
template <int kQueries>
__device__ __forceinline__ void weigh_values(const ChunkWeights<kQueries>& weights, const float* values, int head_dim, int begin,
                                             int end, int shared_begin, int shared_end, float (&sums)[kQueries]) {
  // Loads that are on their way together.
  constexpr int kAhead = kQueries == kMostTileQueries ? 16 : 32;
#pragma unroll
  for (int q = 0; q < kQueries; ++q) sums[q] = 0.0f;
  for (int at = begin / kAhead * kAhead; at < end; at += kAhead) {
    float value[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      value[i] = at + i >= begin && at + i < end ? values[int64_t{at + i} * head_dim] : 0.0f;
    }
    if (at >= shared_begin && at + kAhead <= shared_end) {
#pragma unroll
      for (int i = 0; i < kAhead; i += 4) {
#pragma unroll
        for (int q = 0; q < kQueries; ++q) {
          const float4 terms = *reinterpret_cast<const float4*>(&weights.terms[q][at + i]);
          sums[q] = fused(terms.x, value[i], sums[q]);
          sums[q] = fused(terms.y, value[i + 1], sums[q]);
          sums[q] = fused(terms.z, value[i + 2], sums[q]);
          sums[q] = fused(terms.w, value[i + 3], sums[q]);
        }
      }
      continue;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int q = 0; q < kQueries; ++q) {
        const bool seen = at + i >= weights.begins[q] && at + i < weights.ends[q];
        if (seen) sums[q] = fused(weights.terms[q][at + i], value[i], sums[q]);
      }
    }
  }
}

// All dimensions of a run's queries over one chunk. A chunk that is the only one of its rows gives the result at once.
template <int kQueries>
__device__ void weigh_chunk(const AttentionWork& work, const RowRun& run, const HeadTile& tile, int chunk,
                            const ChunkWeights<kQueries>& weights) {
  const int head_dim = work.shape.head_dim;
  const int start = (run.first_chunk + chunk) * kAttentionChunk;
  const float* const block =
      work.rows[run.first].value_blocks[run.first_chunk + chunk] + int64_t{tile.kv_head} * kAttentionChunk * head_dim;
  for (int d = static_cast<int>(threadIdx.x); d < head_dim; d += static_cast<int>(blockDim.x)) {
    float sums[kQueries];
    weigh_values<kQueries>(weights, block + d, head_dim, max(run.begin - start, 0), min(run.end - start, kAttentionChunk),
                           run.shared_begin - start, run.shared_end - start, sums);
#pragma unroll
    for (int q = 0; q < kQueries; ++q) {
      const QueryPlace place(work, run, tile, q);
      if (!place.taken) continue;
      const int64_t index = place.index(work);
      if (work.chunks > 1) {
        work.value_sums[(index * work.chunks + chunk) * head_dim + d] = sums[q];
      } else {
        // Sums of chunks begin with +0, which a single -0 does not survive.
        work.out[index * head_dim + d] = divided(0.0f + sums[q], 0.0f + weights.denominators[q]);
      }
    }
  }
}

// Block (x, y, z): tile x of rows, tile y of heads, chunk z counted from the rows' first one.
template <int kQueries>
__global__ void __launch_bounds__(kMostValueThreads) value_kernel(const AttentionWork work) {
  __shared__ ChunkWeights<kQueries> weights;
  const HeadTile tile(work, static_cast<int>(blockIdx.y));
  const int chunk = static_cast<int>(blockIdx.z);
  const int last = min((static_cast<int>(blockIdx.x) + 1) * work.tiles.rows, work.n);
  RowRun run;
  for (int first = static_cast<int>(blockIdx.x) * work.tiles.rows; first < last; first += run.rows) {
    run = next_run(work, first, last);
    if ((run.first_chunk + chunk) * kAttentionChunk >= run.end) continue;
    const int warps = static_cast<int>(blockDim.x) / kWarp;
    for (int query = static_cast<int>(threadIdx.x) / kWarp; query < kQueries; query += warps) {
      exponentiate<kQueries>(work, run, tile, chunk, query, weights);
    }
    __syncthreads();
    weigh_chunk<kQueries>(work, run, tile, chunk, weights);
    __syncthreads();
  }
}

}  // namespace

cudaError_t launch_attention_values(const AttentionWork& work, cudaStream_t stream) {
  const int wanted = (work.shape.head_dim + kWarp - 1) / kWarp * kWarp;
  const auto threads = static_cast<unsigned>(wanted < kMostValueThreads ? wanted : kMostValueThreads);
  void (*const kernel)(AttentionWork) = work.tiles.queries == 1   ? value_kernel<1>
                                        : work.tiles.queries == 2 ? value_kernel<2>
                                        : work.tiles.queries == 4 ? value_kernel<4>
                                                                  : value_kernel<8>;
  return launch_grid(work.grid(1), threads, stream, kernel, work);
}

}  // namespace odmoe::cuda
