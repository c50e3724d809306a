// The scores by which an indexer chooses positions. They are dots of a row's heads with one key for each position, as in attention.
#pragma once
#include "kernels_attention.h"

namespace odmoe::cpu {
namespace {

// Floats of scratch for a number of heads whose queries are scored together over one chunk (attention_scratch() has the same layout).
constexpr int64_t index_scratch(int64_t head_dim, int64_t heads) {
  const int64_t padded_dim = column_blocks(head_dim) * kLanes;
  return heads * (kLanes + padded_dim + kAttentionChunk) + kTileRows * padded_dim;
}
static_assert(index_scratch(kMostIndexDimensions, 1) <= static_cast<int64_t>(kThreadScratch));

// scores += weight * max(0, dot), head after head.
void add_heads(const QueryBatch& batch, const float* weights, float* scores, int64_t positions) {
  const Vector zero = Simd::zero();
  for (int64_t p = 0; p < positions; p += kWidth) {
    Vector sum = Simd::load(scores + p);
    for (int q = 0; q < batch.count; ++q) {
      const Vector dot = Simd::greater(Simd::load(batch.queries[q].scores + p), zero);
      sum = Simd::fma(Simd::broadcast(weights[q]), dot, sum);
    }
    Simd::store(scores + p, sum);
  }
}

// take(batch, first head) gets the heads' dots with the keys, some heads at a time.
template <class Take>
void score_heads(const IndexJob& job, float* scratch, const Take& take) {
  int together = static_cast<int>(at_most(kMaxQueries, job.heads));
  while (index_scratch(job.head_dim, together) > static_cast<int64_t>(kThreadScratch)) --together;
  // The block is a cache of its own, of which one row sees all positions.
  const AttentionRow row{{&job.keys, nullptr}, job.positions - 1};
  AttentionShape shape;
  shape.heads = job.heads;
  shape.kv_heads = 1;
  shape.head_dim = job.head_dim;
  shape.values_in_keys = true;
  const AttentionJob of{nullptr, &row, job.queries, 0, shape};
  for (int head = 0; head < job.heads; head += together) {
    const int heads = static_cast<int>(at_most(together, job.heads - head));
    const QueryBatch batch(of, {0, 1, head, heads, job.positions, scratch});
    score_positions(batch, 0, job.positions);
    take(batch, head);
  }
}

void index_scores(const IndexJob& job, float* scratch) {
  for (int64_t p = 0; p < kAttentionChunk; ++p) job.scores[p] = 0.0f;
  score_heads(job, scratch,
              [&job](const QueryBatch& batch, int head) { add_heads(batch, job.weights + head, job.scores, job.positions); });
}

void index_dots(const IndexJob& job, float* scratch) {
  score_heads(job, scratch, [&job](const QueryBatch& batch, int head) {
    for (int q = 0; q < batch.count; ++q) {
      float* const scores = job.scores + (head + q) * job.head_stride;
      for (int64_t p = 0; p < job.positions; ++p) scores[p] = batch.queries[q].scores[p];
    }
  });
}

}  // namespace
}  // namespace odmoe::cpu
