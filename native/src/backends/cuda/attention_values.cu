// Second step of attention: per chunk the exponentials of its scores, their sum, and the values weighted with them.
#include "attention_tiles.h"
#include "grid_launch.h"

namespace odmoe::cuda {
namespace {

constexpr int kMostValueThreads = 256;

// The weights of the tile's queries for the values of one chunk, and the positions of the chunk that each query sees.
template <int kQueries>
struct ChunkWeights {
  __align__(16) float terms[kQueries][kAttentionChunk];
  float denominators[kQueries];
  float sink_terms[kQueries];
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
  const float* const sinks = work.shape.sinks;
  if (sinks != nullptr) greatest = greater(sinks[place.head], greatest);
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
  const float sink_term = sinks != nullptr ? exponential(sinks[place.head] - greatest) : 0.0f;
  weights.denominators[query] = denominator;
  weights.sink_terms[query] = sink_term;
  weights.begins[query] = begin;
  weights.ends[query] = end;
  if (!place.taken || work.chunks == 1) return;
  work.denominators[index * work.chunks + chunk] = denominator;
  // Every row has a first chunk.
  if (chunk == 0) work.sink_terms[index] = sink_term;
}

// The layout of one key-value head's values in a block of the cache.
struct ValueBlock {
  const float* first;
  int pitch;

  __device__ ValueBlock(const AttentionWork& work, const RowRun& run, const HeadTile& tile, int chunk) {
    const DeviceAttentionRow& row = work.rows[run.first];
    const bool in_keys = work.shape.values_in_keys;
    pitch = in_keys ? work.shape.head_dim : work.shape.value_dim;
    first =
        (in_keys ? row.key_blocks : row.value_blocks)[run.first_chunk + chunk] + int64_t{tile.kv_head} * kAttentionChunk * pitch;
  }
};

// sums[q][i] += term * value over the chunk, by rising position, for the dimensions that begin at values + i * apart.
// [begin, end): positions that any query sees; [shared_begin, shared_end): positions that all queries see.
template <int kQueries, int kDims>
__device__ __forceinline__ void weigh_values(const ChunkWeights<kQueries>& weights, const float* values, int pitch, int apart,
                                             int begin, int end, int shared_begin, int shared_end, float (&sums)[kQueries][kDims]) {
  // Number of loads in flight together.
  constexpr int kAhead = kQueries >= kMostTileQueries ? 16 : 32;
#pragma unroll
  for (int i = 0; i < kQueries * kDims; ++i) sums[i / kDims][i % kDims] = 0.0f;
  for (int at = begin / kAhead * kAhead; at < end; at += kAhead) {
    float value[kAhead][kDims];
#pragma unroll
    for (int i = 0; i < kAhead * kDims; ++i) {
      const int position = at + i / kDims;
      value[i / kDims][i % kDims] = position >= begin && position < end ? values[position * pitch + i % kDims * apart] : 0.0f;
    }
    if (at >= shared_begin && at + kAhead <= shared_end) {
#pragma unroll
      for (int i = 0; i < kAhead; i += 4) {
#pragma unroll
        for (int q = 0; q < kQueries; ++q) {
          const float4 terms = *reinterpret_cast<const float4*>(&weights.terms[q][at + i]);
#pragma unroll
          for (int d = 0; d < kDims; ++d) {
            sums[q][d] = fused(terms.x, value[i][d], sums[q][d]);
            sums[q][d] = fused(terms.y, value[i + 1][d], sums[q][d]);
            sums[q][d] = fused(terms.z, value[i + 2][d], sums[q][d]);
            sums[q][d] = fused(terms.w, value[i + 3][d], sums[q][d]);
          }
        }
      }
      continue;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int q = 0; q < kQueries; ++q) {
        const bool seen = at + i >= weights.begins[q] && at + i < weights.ends[q];
#pragma unroll
        for (int d = 0; d < kDims; ++d) {
          if (seen) sums[q][d] = fused(weights.terms[q][at + i], value[i][d], sums[q][d]);
        }
      }
    }
  }
}

// Computes all dimensions of a run's queries over one chunk. If its rows have only this chunk, it writes the final result.
template <int kQueries, int kDims>
__device__ void weigh_chunk(const AttentionWork& work, const RowRun& run, const HeadTile& tile, int chunk,
                            const ChunkWeights<kQueries>& weights) {
  const int value_dim = work.shape.value_dim;
  const auto apart = static_cast<int>(blockDim.x);
  const int start = (run.first_chunk + chunk) * kAttentionChunk;
  const ValueBlock block(work, run, tile, chunk);
  for (int d = static_cast<int>(threadIdx.x); d < value_dim; d += kDims * apart) {
    float sums[kQueries][kDims];
    // A missing dimension repeats the thread's first one, and its result is not written.
    weigh_values<kQueries, kDims>(weights, block.first + d, block.pitch, d + (kDims - 1) * apart < value_dim ? apart : 0,
                                  max(run.begin - start, 0), min(run.end - start, kAttentionChunk), run.shared_begin - start,
                                  run.shared_end - start, sums);
#pragma unroll
    for (int i = 0; i < kQueries * kDims; ++i) {
      const int q = i / kDims;
      const int dimension = d + i % kDims * apart;
      const QueryPlace place(work, run, tile, q);
      if (!place.taken || dimension >= value_dim) continue;
      const int64_t index = place.index(work);
      const float sum = sums[q][i % kDims];
      if (work.chunks > 1) {
        work.value_sums[(index * work.chunks + chunk) * value_dim + dimension] = sum;
      } else {
        // Sums of chunks begin with +0, so that a single -0 becomes +0.
        const float denominator = 0.0f + weights.denominators[q] + weights.sink_terms[q];
        work.out[index * value_dim + dimension] = divided(0.0f + sum, denominator);
      }
    }
  }
}

// Block (x, y, z): tile x of rows, tile y of heads, chunk z counted from the rows' first one. A thread takes kDims dimensions at a time.
template <int kQueries, int kDims>
__global__ void __launch_bounds__(kMostValueThreads) value_kernel(const AttentionWork work) {
  __shared__ ChunkWeights<kQueries> weights;
  const auto head_tile = static_cast<int>(blockIdx.y);
  const HeadTile tile(work, head_tile / work.tiles.per_group, head_tile % work.tiles.per_group);
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
    weigh_chunk<kQueries, kDims>(work, run, tile, chunk, weights);
    __syncthreads();
  }
}

template <int kQueries, int kDims>
cudaError_t launch_values(const AttentionWork& work, cudaStream_t stream) {
  const int wanted = (work.shape.value_dim + kDims * kWarp - 1) / (kDims * kWarp) * kWarp;
  const auto threads = static_cast<unsigned>(wanted < kMostValueThreads ? wanted : kMostValueThreads);
  return launch_grid(work.grid(work.tiles.per_group, 1), threads, stream, value_kernel<kQueries, kDims>, work);
}

}  // namespace

cudaError_t launch_attention_values(const AttentionWork& slice, cudaStream_t stream) {
  AttentionWork work = slice;
  work.tiles = value_tiles(work.n, work.chunks, work.shape);
  switch (work.tiles.queries) {
    case 1: return launch_values<1, 1>(work, stream);
    case 2: return launch_values<2, 1>(work, stream);
    case 4: return launch_values<4, 1>(work, stream);
    case 8: return launch_values<8, 1>(work, stream);
    default: return launch_values<16, 2>(work, stream);
  }
}

}  // namespace odmoe::cuda
