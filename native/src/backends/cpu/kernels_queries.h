// The data of a batch of queries over one key-value head: its keys and values, and each query's scratch.
#pragma once
#include "kernels_norms.h"

namespace odmoe::cpu {
namespace {

// One head of one row: it sees positions [begin, end).
struct Query {
  const float* vector;
  float* out;
  int64_t begin;
  int64_t end;
  float* scores;       // scores of positions from the batch's first chunk on; later their exponentials
  float* values;       // value sums of the current chunk
  float* denominator;  // one
  float sink;          // minus infinity: none
};

struct QueryBatch {
  KeyValueLayer cache;
  bool values_in_keys;
  bool has_sinks;
  int64_t kv_head;
  int64_t head_dim;
  int64_t padded_dim;
  int64_t value_dim;
  int64_t value_step;  // floats from one position's value to the next one's
  float scale;
  float* keys;  // scratch for four padded keys
  int64_t begin;
  int64_t end;
  int64_t first_chunk;
  int64_t chunks;
  int count;
  Query queries[kMaxQueries];

  QueryBatch(const AttentionJob& job, const AttentionBatch& of);
  const float* keys_of(int64_t chunk) const { return cache.key_blocks[chunk] + kv_head * kAttentionChunk * head_dim; }
  const float* values_of(int64_t chunk) const {
    return (values_in_keys ? cache.key_blocks : cache.value_blocks)[chunk] + kv_head * kAttentionChunk * value_step;
  }
  bool padded() const { return padded_dim != head_dim; }
  // The key or value `positions` behind position `in_chunk` of a chunk, in this chunk or the next one. Null: it is behind the last
  // one.
  const float* ahead(int64_t chunk, int64_t in_chunk, int64_t positions, bool values) const;
};

ODMOE_INLINE int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }
ODMOE_INLINE int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

// Assigns the places of scores, value sums and padded queries in scratch, and the visible positions of each query
// (attention_scratch() has the same layout).
QueryBatch::QueryBatch(const AttentionJob& job, const AttentionBatch& of) {
  const AttentionShape& shape = job.shape;
  cache = job.rows[of.first_row].cache;
  values_in_keys = shape.values_in_keys;
  has_sinks = shape.sinks != nullptr;
  kv_head = of.first_head / (shape.heads / shape.kv_heads);
  head_dim = shape.head_dim;
  padded_dim = column_blocks(shape.head_dim) * kLanes;
  value_dim = shape.value_dim;
  value_step = shape.values_in_keys ? shape.head_dim : shape.value_dim;
  scale = shape.score_scale;
  count = 0;
  for (int i = of.first_row; i < of.first_row + of.rows; ++i) {
    for (int64_t head = of.first_head; head < of.first_head + of.heads; ++head) {
      Query& query = queries[count++];
      query.vector = job.queries + i * job.stride + head * shape.head_dim;
      query.out = job.out + (int64_t{i} * shape.heads + head) * shape.value_dim;
      query.sink = has_sinks ? shape.sinks[head] : -__builtin_inff();
      query.end = int64_t{job.rows[i].position} + 1;
      query.begin = shape.sliding_window > 0 ? at_least(0, query.end - shape.sliding_window) : 0;
      begin = count == 1 ? query.begin : at_most(begin, query.begin);
      end = count == 1 ? query.end : at_least(end, query.end);
    }
  }
  first_chunk = begin / kAttentionChunk;
  chunks = (end - 1) / kAttentionChunk + 1 - first_chunk;
  keys = of.scratch;
  float* free = of.scratch + kTileRows * padded_dim;
  for (int q = 0; q < count; ++q) {
    queries[q].denominator = free;
    queries[q].values = free + kLanes;
    float* const copy = queries[q].values + column_blocks(value_dim) * kLanes;
    queries[q].scores = copy + padded_dim;
    free = queries[q].scores + chunks * kAttentionChunk;
    if (!padded()) continue;
    for (int64_t d = 0; d < padded_dim; ++d) copy[d] = d < head_dim ? queries[q].vector[d] : 0.0f;
    queries[q].vector = copy;
  }
}

const float* QueryBatch::ahead(int64_t chunk, int64_t in_chunk, int64_t positions, bool values) const {
  const int64_t beyond = (in_chunk + positions) / kAttentionChunk;
  if (chunk + beyond >= first_chunk + chunks) return nullptr;
  const float* const block = values ? values_of(chunk + beyond) : keys_of(chunk + beyond);
  return block + (in_chunk + positions - beyond * kAttentionChunk) * (values ? value_step : head_dim);
}

}  // namespace
}  // namespace odmoe::cpu
