// Entries of pools of positions, and copies of the keys that rows see.
#include "grid_launch.h"
#include "pool_work.h"
#include "warp_folds.h"

namespace odmoe::cuda {
namespace {

constexpr int kPoolThreads = 64;
constexpr int kSeenThreads = 128;

// A position's part of a channel of an entry: its value, and the logit of its weight.
struct PoolTerm {
  float value;
  float logit;
};

__device__ PoolTerm pool_term(const PoolJob& job, const DeviceAttentionRow& row, int position, int channel) {
  const int parts = job.overlaps ? 2 : 1;
  const int part = position > row.position - job.positions ? parts - 1 : 0;
  const int64_t plane = int64_t{kAttentionChunk} * job.size;
  const float* const first = row.key_blocks[position / kAttentionChunk] + int64_t{position % kAttentionChunk} * job.size + channel;
  const float bias = job.gate_biases[int64_t{position % job.positions * parts + part} * job.size + channel];
  return {first[part * plane], first[(parts + part) * plane] + bias};
}

// Thread (x, y): a channel of row y.
__global__ void __launch_bounds__(kPoolThreads) pool_kernel(const PoolJob job) {
  const int channel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (channel >= job.size) return;
  const DeviceAttentionRow row = job.rows[blockIdx.y];
  const int last = row.position;
  const bool two = job.overlaps && last + 1 >= 2 * job.positions;
  const int first = last + 1 - (two ? 2 : 1) * job.positions;
  float most = -INFINITY;
  for (int p = first; p <= last; ++p) most = greater(pool_term(job, row, p, channel).logit, most);
  float weights = 0.0f;
  float sum = 0.0f;
  for (int p = first; p <= last; ++p) {
    const PoolTerm term = pool_term(job, row, p, channel);
    const float weight = exponential(term.logit - most);
    weights = weights + weight;
    sum = fused(weight, term.value, sum);
  }
  job.out[int64_t{blockIdx.y} * job.size + channel] = divided(sum, weights);
}

// Block (x, y): the key that row y sees at place x of whole pools, if there is one.
__global__ void __launch_bounds__(kSeenThreads) seen_pools_kernel(const SeenJob job) {
  const DeviceAttentionRow row = job.rows[blockIdx.y];
  const int place = static_cast<int>(blockIdx.x);
  const int complete = (row.position + 1) / job.positions;
  const int pools = complete < job.entries ? complete : job.entries;
  const int pool = place / job.positions;
  if (place >= pools * job.positions + (row.position + 1) % job.positions) return;
  int first = complete * job.positions;
  if (pool < pools) first = (pools < complete ? job.chosen[int64_t{blockIdx.y} * job.entries + pool] : pool) * job.positions;
  const int position = first + place % job.positions;
  const float* const from = row.key_blocks[position / kAttentionChunk] + int64_t{position % kAttentionChunk} * job.size;
  float* const out = job.out + int64_t{blockIdx.y} * job.out_stride + int64_t{place} * job.size;
  for (int d = static_cast<int>(threadIdx.x); d < job.size; d += kSeenThreads) out[d] = from[d];
}

// Block (x, y): the vector that row y sees at place x, if there is one.
__global__ void __launch_bounds__(kSeenThreads) seen_kernel(const SeenJob job) {
  const DeviceAttentionRow row = job.rows[blockIdx.y];
  const int place = static_cast<int>(blockIdx.x);
  const int complete = (row.position + 1) / job.positions;
  const int entries = complete < job.entries ? complete : job.entries;
  const int window = row.position + 1 < job.window ? row.position + 1 : job.window;
  if (place >= entries + window) return;
  const bool is_entry = place < entries;
  int position = row.position + 1 - window + place - entries;
  if (is_entry) {
    const int entry = entries < complete ? job.chosen[int64_t{blockIdx.y} * job.entries + place] : place;
    position = (entry + 1) * job.positions - 1;
  }
  const float* const from =
      (is_entry ? row.value_blocks : row.key_blocks)[position / kAttentionChunk] + int64_t{position % kAttentionChunk} * job.size;
  float* const out = job.out + int64_t{blockIdx.y} * job.out_stride + int64_t{place} * job.size;
  for (int d = static_cast<int>(threadIdx.x); d < job.size; d += kSeenThreads) out[d] = from[d];
}

}  // namespace

cudaError_t launch_pool(const PoolJob& job, cudaStream_t stream) {
  return launch_row_slices(job.n, [=](int64_t first, int some) {
    PoolJob slice = job;
    slice.out += first * job.size;
    slice.rows += first;
    slice.n = some;
    return launch_grid(dim3(blocks_for(job.size, kPoolThreads), static_cast<unsigned>(some), 1), kPoolThreads, stream, pool_kernel,
                       slice);
  });
}

cudaError_t launch_gather_seen(const SeenJob& job, cudaStream_t stream) {
  return launch_row_slices(job.n, [=](int64_t first, int some) {
    SeenJob slice = job;
    slice.out += first * job.out_stride;
    slice.rows += first;
    if (job.chosen != nullptr) slice.chosen += first * job.entries;
    slice.n = some;
    return launch_grid(dim3(static_cast<unsigned>(job.most), static_cast<unsigned>(some), 1), kSeenThreads, stream,
                       job.whole_pools ? seen_pools_kernel : seen_kernel, slice);
  });
}

}  // namespace odmoe::cuda
