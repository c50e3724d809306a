// The choice of an indexer: scores of all positions of a row, the best of them in rising order, and copies of the keys there.
#include "grid_launch.h"
#include "indexer_work.h"
#include "warp_folds.h"

namespace odmoe::cuda {
namespace {

constexpr int kScoreThreads = 128;
constexpr int kChoiceThreads = 256;
constexpr int kChoiceWarps = kChoiceThreads / kWarp;
constexpr int kGatherThreads = 128;

// A lane's part of a warp's 32 keys: dimensions d with d mod 32 = lane. They stay in registers where their number is known.
template <int kBlocks>
struct WarpKeys {
  const float* first;
  int lane;
  int head_dim;
  static constexpr int kHeld = kBlocks > 0 ? kBlocks : 1;
  float held[kWarp][kHeld];

  __device__ WarpKeys(const float* keys, int of_lane, int dimensions) : first(keys), lane(of_lane), head_dim(dimensions) {
#pragma unroll
    for (int i = 0; i < kWarp * kBlocks; ++i) held[i / kHeld][i % kHeld] = read(i / kHeld, i % kHeld);
  }

  __device__ float read(int position, int block) const {
    const int d = block * kWarp + lane;
    return d < head_dim ? first[int64_t{position} * head_dim + d] : 0.0f;
  }

  // The lane gets the dot of the query with key number `lane`.
  __device__ float dot(const float* query) const {
    float sums[kWarp];
#pragma unroll
    for (int p = 0; p < kWarp; ++p) sums[p] = 0.0f;
    if (kBlocks > 0) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const float x = block * kWarp + lane < head_dim ? query[block * kWarp + lane] : 0.0f;
#pragma unroll
        for (int p = 0; p < kWarp; ++p) sums[p] = fused(x, held[p][kBlocks > 0 ? block : 0], sums[p]);
      }
    } else {
      for (int block = 0; block * kWarp < head_dim; ++block) {
        const float x = block * kWarp + lane < head_dim ? query[block * kWarp + lane] : 0.0f;
#pragma unroll
        for (int p = 0; p < kWarp; ++p) sums[p] = fused(x, read(p, block), sums[p]);
      }
    }
    return fold_transposed(sums, lane);
  }
};

// Block (x, y): 128 positions of row y; a warp has 32 of them, a lane one.
template <int kBlocks>
__global__ void __launch_bounds__(kScoreThreads) index_score_kernel(const ChoiceJob job) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = static_cast<int>(blockIdx.x) * kScoreThreads + static_cast<int>(threadIdx.x) / kWarp * kWarp;
  const int64_t row = blockIdx.y;
  const int position = job.rows[row].position;
  if (position < job.count || first > position) return;
  // The block's memory goes on past the stored positions; scores of those are computed but not written.
  const float* const block = job.rows[row].key_blocks[first / kAttentionChunk];
  const WarpKeys<kBlocks> keys(block + int64_t{first % kAttentionChunk} * job.head_dim, lane, job.head_dim);
  const float* const weights = job.weights + row * job.heads;
  float score = 0.0f;
  for (int head = 0; head < job.heads; ++head) {
    const float dot = keys.dot(job.queries + (row * job.heads + head) * job.head_dim);
    score = fused(weights[head], greater(dot, 0.0f), score);
  }
  if (first + lane <= position) job.scores[row * job.width + first + lane] = score;
}

// Block (x, y): 128 positions of row y. Each head's dots are scores by themselves.
template <int kBlocks>
__global__ void __launch_bounds__(kScoreThreads) head_score_kernel(const BlockChoiceJob job) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = static_cast<int>(blockIdx.x) * kScoreThreads + static_cast<int>(threadIdx.x) / kWarp * kWarp;
  const int64_t row = blockIdx.y;
  const int position = job.rows[row].position;
  if (position / job.block_size < job.blocks || first > position) return;
  const float* const block = job.rows[row].key_blocks[first / kAttentionChunk];
  const WarpKeys<kBlocks> keys(block + int64_t{first % kAttentionChunk} * job.head_dim, lane, job.head_dim);
  for (int head = 0; head < job.heads; ++head) {
    const float dot = keys.dot(job.queries + (row * job.heads + head) * job.head_dim);
    if (first + lane <= position) job.scores[(row * job.heads + head) * job.width + first + lane] = dot;
  }
}

// Block (x, y): kScoreThreads / kWarp blocks of positions for row and head y, a warp for each.
__global__ void __launch_bounds__(kScoreThreads) block_score_kernel(const BlockChoiceJob job) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t block = (int64_t{blockIdx.x} * kScoreThreads + threadIdx.x) / kWarp;
  const int64_t place = blockIdx.y;
  const int64_t position = job.rows[place / job.heads].position;
  const int64_t first = block * job.block_size;
  if (position / job.block_size < job.blocks || first > position) return;
  const int64_t end = first + job.block_size <= position ? first + job.block_size : position + 1;
  float greatest = -INFINITY;
  for (int64_t p = first + lane; p < end; p += kWarp) greatest = greater(job.scores[place * job.width + p], greatest);
  greatest = greatest_of_lanes<kWarp>(greatest);
  if (lane == 0) job.block_scores[place * job.width_blocks + block] = greatest;
}

// Greater scores have greater keys. NaN counts as -inf, -0 as +0.
__device__ __forceinline__ uint32_t order_key(float score) {
  const uint32_t bits = bits_of_float(score == score ? score + 0.0f : -INFINITY);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The least key of a chosen position, and the number of chosen positions with just that key.
struct LeastKey {
  uint32_t key;
  int positions;
};

// Finds the key byte by byte, from the highest byte on. All threads of the block call it and get the result.
__device__ LeastKey least_chosen(const float* scores, int positions, int count) {
  __shared__ unsigned with_byte[256];
  __shared__ LeastKey found;
  const int thread = static_cast<int>(threadIdx.x);
  LeastKey least = {0u, count};
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int byte = thread; byte < 256; byte += kChoiceThreads) with_byte[byte] = 0u;
    __syncthreads();
    for (int p = thread; p < positions; p += kChoiceThreads) {
      const uint32_t key = order_key(scores[p]);
      const bool same_above = shift == 24 || ((key ^ least.key) >> (shift + 8)) == 0u;
      if (same_above) atomicAdd(&with_byte[key >> shift & 255u], 1u);
    }
    __syncthreads();
    if (thread == 0) {
      int byte = 255;
      int left = least.positions;
      for (; static_cast<int>(with_byte[byte]) < left; --byte) left -= static_cast<int>(with_byte[byte]);
      found = {least.key | static_cast<uint32_t>(byte) << shift, left};
    }
    __syncthreads();
    least = found;
  }
  return least;
}

struct WarpCounts {
  int above[kChoiceWarps];
  int equal[kChoiceWarps];
};

// The places of the `count` greatest scores, in rising order. All threads of the block call it.
__device__ void choose_best(int32_t* chosen, const float* scores, int positions, int count) {
  __shared__ WarpCounts counts;
  const LeastKey least = least_chosen(scores, positions, count);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const unsigned lanes_before = (1u << (threadIdx.x % kWarp)) - 1u;
  int above = 0;  // positions before the tile whose keys are above the least one
  int equal = 0;
  for (int tile = 0; tile < positions; tile += kChoiceThreads) {
    const int p = tile + static_cast<int>(threadIdx.x);
    const uint32_t key = p < positions ? order_key(scores[p]) : 0u;
    const bool is_above = p < positions && key > least.key;
    const bool is_equal = p < positions && key == least.key;
    const unsigned above_lanes = __ballot_sync(kFullWarp, is_above);
    const unsigned equal_lanes = __ballot_sync(kFullWarp, is_equal);
    if (threadIdx.x % kWarp == 0) {
      counts.above[warp] = __popc(above_lanes);
      counts.equal[warp] = __popc(equal_lanes);
    }
    __syncthreads();
    int above_here = above + __popc(above_lanes & lanes_before);
    int equal_here = equal + __popc(equal_lanes & lanes_before);
    for (int other = 0; other < kChoiceWarps; ++other) {
      above += counts.above[other];
      equal += counts.equal[other];
      above_here += other < warp ? counts.above[other] : 0;
      equal_here += other < warp ? counts.equal[other] : 0;
    }
    // The first ones of the positions with the least key are chosen.
    const int place = above_here + min(equal_here, least.positions);
    if (is_above || (is_equal && equal_here < least.positions)) chosen[place] = p;
    __syncthreads();
  }
}

// A block handles a row.
__global__ void __launch_bounds__(kChoiceThreads) choice_kernel(const ChoiceJob job) {
  const int64_t row = blockIdx.x;
  const int positions = job.rows[row].position + 1;
  if (positions <= job.count) return;
  choose_best(job.chosen + row * job.count, job.scores + row * job.width, positions, job.count);
}

// A block handles a head of a row.
__global__ void __launch_bounds__(kChoiceThreads) block_choice_kernel(const BlockChoiceJob job) {
  const int64_t place = blockIdx.x;
  const int own = job.rows[place / job.heads].position / job.block_size;
  if (own < job.blocks) return;
  int32_t* const best = job.best + place * job.blocks;
  const int others = own + 1 - job.local_blocks;
  const int count = job.blocks - job.local_blocks;
  if (count > 0) choose_best(best, job.block_scores + place * job.width_blocks, others, count);
  for (int i = static_cast<int>(threadIdx.x); i < job.local_blocks; i += kChoiceThreads) best[count + i] = others + i;
}

// Block (x, y): the positions of chosen block x of row and head y.
__global__ void __launch_bounds__(kGatherThreads) block_positions_kernel(const BlockChoiceJob job) {
  const int64_t place = blockIdx.y;
  const int64_t position = job.rows[place / job.heads].position;
  if (position / job.block_size < job.blocks) return;
  const int64_t first = int64_t{job.best[place * job.blocks + blockIdx.x]} * job.block_size;
  int32_t* const chosen = job.chosen + (place * job.blocks + blockIdx.x) * job.block_size;
  for (int i = static_cast<int>(threadIdx.x); i < job.block_size; i += kGatherThreads) {
    chosen[i] = static_cast<int32_t>(first + i < position ? first + i : position);
  }
}

// Block (x, y): the key at chosen position x of row y.
__global__ void __launch_bounds__(kGatherThreads) gather_kernel(const GatherJob job) {
  const int64_t row = blockIdx.y;
  const int place = static_cast<int>(blockIdx.x);
  const int position = job.chosen[row * job.count + place];
  const float* const key = job.rows[row].key_blocks[position / kAttentionChunk] + int64_t{position % kAttentionChunk} * job.size;
  float* const out = job.out + row * job.out_stride + int64_t{place} * job.size;
  for (int d = static_cast<int>(threadIdx.x); d < job.size; d += kGatherThreads) out[d] = key[d];
}

}  // namespace

cudaError_t launch_choose_positions(const ChoiceJob& job, cudaStream_t stream) {
  const dim3 grid(blocks_for(job.width, kScoreThreads), static_cast<unsigned>(job.n), 1);
  const cudaError_t error =
      launch_grid(grid, kScoreThreads, stream,
                  job.head_dim > 3 * kWarp && job.head_dim <= 4 * kWarp ? index_score_kernel<4> : index_score_kernel<0>, job);
  if (error != cudaSuccess) return error;
  return launch_grid(dim3(static_cast<unsigned>(job.n), 1, 1), kChoiceThreads, stream, choice_kernel, job);
}

cudaError_t launch_choose_blocks(const BlockChoiceJob& job, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(job.n);
  const auto places = static_cast<unsigned>(job.n * job.heads);
  cudaError_t error =
      launch_grid(dim3(blocks_for(job.width, kScoreThreads), rows, 1), kScoreThreads, stream,
                  job.head_dim > 3 * kWarp && job.head_dim <= 4 * kWarp ? head_score_kernel<4> : head_score_kernel<0>, job);
  if (error != cudaSuccess) return error;
  error = launch_grid(dim3(blocks_for(job.width_blocks, kScoreThreads / kWarp), places, 1), kScoreThreads, stream,
                      block_score_kernel, job);
  if (error != cudaSuccess) return error;
  error = launch_grid(dim3(places, 1, 1), kChoiceThreads, stream, block_choice_kernel, job);
  if (error != cudaSuccess) return error;
  return launch_grid(dim3(static_cast<unsigned>(job.blocks), places, 1), kGatherThreads, stream, block_positions_kernel, job);
}

cudaError_t launch_gather_keys(const GatherJob& job, cudaStream_t stream) {
  return launch_row_slices(job.n, [=](int64_t first, int some) {
    GatherJob slice = job;
    slice.out += first * job.out_stride;
    slice.rows += first;
    slice.chosen += first * job.count;
    slice.n = some;
    return launch_grid(dim3(static_cast<unsigned>(job.count), static_cast<unsigned>(some), 1), kGatherThreads, stream,
                       gather_kernel, slice);
  });
}

}  // namespace odmoe::cuda
