// The operators of an indexer as launches on the backend's compute stream.
#include <algorithm>

#include "cuda_backend.h"
#include "cuda_error.h"
#include "grid_launch.h"
#include "indexer_work.h"

namespace odmoe::cuda {
namespace {

// Scratch for the scores of the rows that choose together; one row may need more.
constexpr int64_t kScoreFloats = int64_t{16} << 20;

// Index keys and latents are keys of one head, without values beside them.
AttentionShape keys_alone(int size) {
  AttentionShape shape;
  shape.heads = 1;
  shape.kv_heads = 1;
  shape.head_dim = size;
  shape.values_in_keys = true;
  return shape;
}

}  // namespace

void CudaBackend::choose_positions(const ChoiceWork& work) {
  if (work.n <= 0) return;
  context_.enter();
  const SentRows sent = send_rows(work.host_rows, work.n, keys_alone(work.head_dim));
  if (sent.last_position < work.count) return;
  ChoiceJob job;
  job.width = (int64_t{sent.last_position} + kLanes) / kLanes * kLanes;
  const int together = static_cast<int>(std::clamp<int64_t>(kScoreFloats / job.width, 1, std::min(work.n, kMostGridRows)));
  job.scores = static_cast<float*>(scratch(static_cast<uint64_t>(together * job.width) * sizeof(float)));
  job.heads = work.heads;
  job.head_dim = work.head_dim;
  job.count = work.count;
  for (int first = 0; first < work.n; first += together) {
    job.n = std::min(together, work.n - first);
    job.chosen = work.chosen + int64_t{first} * work.count;
    job.rows = sent.rows + first;
    job.queries = work.queries + int64_t{first} * work.heads * work.head_dim;
    job.weights = work.weights + int64_t{first} * work.heads;
    check(launch_choose_positions(job, stream_), "the choice of positions");
  }
}

void CudaBackend::choose_blocks(const BlockChoiceWork& work) {
  if (work.n <= 0) return;
  context_.enter();
  const SentRows sent = send_rows(work.host_rows, work.n, keys_alone(work.head_dim));
  if (sent.last_position < work.count()) return;
  BlockChoiceJob job;
  job.heads = work.heads;
  job.head_dim = work.head_dim;
  job.block_size = work.block_size;
  job.blocks = work.blocks;
  job.local_blocks = work.local_blocks;
  job.width = (int64_t{sent.last_position} + kLanes) / kLanes * kLanes;
  job.width_blocks = (job.width + job.block_size - 1) / job.block_size;
  const int64_t row_floats = job.heads * (job.width + job.width_blocks + job.blocks);
  const int most = std::max(1, std::min(work.n, kMostGridRows / job.heads));
  const int together = static_cast<int>(std::clamp<int64_t>(kScoreFloats / row_floats, 1, most));
  job.scores = static_cast<float*>(scratch(static_cast<uint64_t>(together * row_floats) * sizeof(float)));
  job.block_scores = job.scores + together * job.heads * job.width;
  job.best = reinterpret_cast<int32_t*>(job.block_scores + together * job.heads * job.width_blocks);
  for (int first = 0; first < work.n; first += together) {
    job.n = std::min(together, work.n - first);
    job.chosen = work.chosen + int64_t{first} * work.heads * work.count();
    job.rows = sent.rows + first;
    job.queries = work.queries + int64_t{first} * work.heads * work.head_dim;
    check(launch_choose_blocks(job, stream_), "the choice of blocks");
  }
}

void CudaBackend::gather_keys(float* out, const AttentionRow* host_rows, const int32_t* chosen, int n, int count, int size) {
  if (n <= 0) return;
  context_.enter();
  GatherJob job;
  job.rows = send_rows(host_rows, n, keys_alone(size)).rows;
  job.out = out;
  job.out_stride = gathered_floats(count, size);
  job.chosen = chosen;
  job.n = n;
  job.count = count;
  job.size = size;
  check(launch_gather_keys(job, stream_), "gathering keys");
}

}  // namespace odmoe::cuda
