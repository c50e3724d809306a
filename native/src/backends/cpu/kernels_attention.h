// Attention of a few rows over one key-value head. Rows that share a cache are taken together, so that keys and values are read
// once for all of them; each query still gets exactly what it would get alone.
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
  float* scores;  // of positions from the first chunk of the batch on
  float* values;  // value sums of the chunk in work
  float sink;     // minus infinity: none
  float denominator;
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

  const float* keys_of(int64_t chunk) const { return cache.key_blocks[chunk] + kv_head * kAttentionChunk * head_dim; }
  const float* values_of(int64_t chunk) const {
    return (values_in_keys ? cache.key_blocks : cache.value_blocks)[chunk] + kv_head * kAttentionChunk * value_step;
  }
};

ODMOE_INLINE int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }
ODMOE_INLINE int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

template <int kQueries>
void score_quad(const QueryBatch& batch, int first, const Fp32Rows& keys, int64_t index) {
  alignas(64) float parked[kTileRows * kQueries * kLanes];
  float dots[kQueries][kTileRows];
  Run run;
  for (int q = 0; q < kQueries; ++q) run.x[q] = batch.queries[first + q].vector;
  run.blocks = batch.padded_dim / kLanes;
  run.parked = parked;
  run.resume = false;
  run.finish = true;
  run.ahead = nullptr;
  run_tile<kQueries, FetchNothing>(keys, run, dots);
  for (int q = 0; q < kQueries; ++q) {
    for (int r = 0; r < kTileRows; ++r) batch.queries[first + q].scores[index + r] = dots[q][r] * batch.scale;
  }
}

// Four positions at a time. Positions of a quad or chunk that a query does not see are computed and later ignored.
void score_positions(const QueryBatch& batch) {
  for (int64_t position = batch.begin / kTileRows * kTileRows; position < batch.end; position += kTileRows) {
    const float* key = batch.keys_of(position / kAttentionChunk) + position % kAttentionChunk * batch.head_dim;
    Fp32Rows keys{key, batch.head_dim};
    if (batch.padded_dim != batch.head_dim) {
      for (int r = 0; r < kTileRows; ++r) {
        for (int64_t d = 0; d < batch.head_dim; ++d) batch.keys[r * batch.padded_dim + d] = key[r * batch.head_dim + d];
      }
      keys = {batch.keys, batch.padded_dim};
    }
    const int64_t index = position - batch.first_chunk * kAttentionChunk;
    int q = 0;
    for (; q + 3 <= batch.count; q += 3) score_quad<3>(batch, q, keys, index);
    if (batch.count - q == 2) score_quad<2>(batch, q, keys, index);
    if (batch.count - q == 1) score_quad<1>(batch, q, keys, index);
  }
}

// Scores become exp(score - greatest); what the query does not see becomes minus infinity first, so it counts nothing.
void exponentiate_scores(QueryBatch& batch) {
  const int64_t base = batch.first_chunk * kAttentionChunk;
  for (int i = 0; i < batch.count; ++i) {
    Query& query = batch.queries[i];
    const int64_t first = query.begin / kAttentionChunk * kAttentionChunk - base;
    const int64_t last = (query.end - 1) / kAttentionChunk * kAttentionChunk + kAttentionChunk - base;
    for (int64_t p = first; p < query.begin - base; ++p) query.scores[p] = -__builtin_inff();
    for (int64_t p = query.end - base; p < last; ++p) query.scores[p] = -__builtin_inff();
    Vector greatest = Simd::broadcast(-__builtin_inff());
    for (int64_t p = first; p < last; p += kWidth) greatest = Simd::greater(Simd::load(query.scores + p), greatest);
    float lanes[kWidth];
    Simd::store(lanes, greatest);
    float most = query.sink > lanes[0] ? query.sink : lanes[0];
    for (int lane = 1; lane < kWidth; ++lane) most = lanes[lane] > most ? lanes[lane] : most;
    query.denominator = 0.0f;
    for (int64_t chunk = first; chunk < last; chunk += kAttentionChunk) {
      float* scores = query.scores + chunk;
      for (int64_t p = 0; p < kAttentionChunk; p += kWidth) {
        Simd::store(scores + p, exponential(Simd::subtract(Simd::load(scores + p), Simd::broadcast(most))));
      }
      query.denominator = query.denominator + fold_values(scores, kAttentionChunk);
    }
    if (batch.has_sinks) query.denominator = query.denominator + first_lane(exponential(Simd::broadcast(query.sink - most)));
  }
}

// values += p * v over positions [begin, end) of a chunk, for kQueries queries and kWide vectors of dimensions from `dim`.
template <int kQueries, int kWide>
ODMOE_INLINE void weigh(const QueryBatch& batch, int first, const float* block, int64_t chunk_index, int64_t begin, int64_t end,
                        int64_t dim) {
  Vector sums[kQueries][kWide];
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kWide; ++v) sums[q][v] = Simd::load(batch.queries[first + q].values + dim + v * kWidth);
  }
  const float* weights[kQueries];
  for (int q = 0; q < kQueries; ++q) weights[q] = batch.queries[first + q].scores + chunk_index;
  for (int64_t p = begin; p < end; ++p) {
    const float* value = block + p * batch.value_step + dim;
    Vector row[kWide];
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) row[v] = Simd::load(value + v * kWidth);
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q) {
      const Vector weight = Simd::broadcast(weights[q][p]);
#pragma GCC unroll 4
      for (int v = 0; v < kWide; ++v) sums[q][v] = Simd::fma(weight, row[v], sums[q][v]);
    }
  }
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kWide; ++v) Simd::store(batch.queries[first + q].values + dim + v * kWidth, sums[q][v]);
  }
}

template <int kQueries>
void weigh_dimensions(const QueryBatch& batch, int first, const float* block, int64_t chunk_index, int64_t begin, int64_t end) {
  int64_t dim = 0;
  for (; dim + 4 * kWidth <= batch.value_dim; dim += 4 * kWidth) {
    weigh<kQueries, 4>(batch, first, block, chunk_index, begin, end, dim);
  }
  for (; dim + kWidth <= batch.value_dim; dim += kWidth) {
    weigh<kQueries, 1>(batch, first, block, chunk_index, begin, end, dim);
  }
  for (; dim < batch.value_dim; ++dim) {
    for (int q = first; q < first + kQueries; ++q) {
      const Query& query = batch.queries[q];
      float sum = query.values[dim];
      for (int64_t p = begin; p < end; ++p) {
        sum = __builtin_fmaf(query.scores[chunk_index + p], block[p * batch.value_step + dim], sum);
      }
      query.values[dim] = sum;
    }
  }
}

void weigh_chunk(const QueryBatch& batch, int64_t chunk) {
  const float* block = batch.values_of(chunk);
  const int64_t start = chunk * kAttentionChunk;
  const int64_t chunk_index = start - batch.first_chunk * kAttentionChunk;
  // Positions that all queries see are taken together; those that only some see, query by query, in order.
  int64_t shared_begin = start;
  int64_t shared_end = start + kAttentionChunk;
  for (int q = 0; q < batch.count; ++q) {
    shared_begin = at_least(shared_begin, batch.queries[q].begin);
    shared_end = at_most(shared_end, batch.queries[q].end);
    for (int64_t d = 0; d < batch.value_dim; ++d) batch.queries[q].values[d] = 0.0f;
  }
  const bool shared = shared_begin < shared_end;
  const auto weigh_alone = [&](int64_t from, int64_t to) {
    for (int q = 0; q < batch.count; ++q) {
      const int64_t begin = at_least(from, batch.queries[q].begin);
      const int64_t end = at_most(to, batch.queries[q].end);
      if (begin < end) weigh_dimensions<1>(batch, q, block, chunk_index, begin - start, end - start);
    }
  };
  weigh_alone(start, shared ? shared_begin : start + kAttentionChunk);
  if (shared) {
    const int64_t begin = shared_begin - start;
    const int64_t end = shared_end - start;
    int q = 0;
    for (; q + 4 <= batch.count; q += 4) weigh_dimensions<4>(batch, q, block, chunk_index, begin, end);
    for (; q + 2 <= batch.count; q += 2) weigh_dimensions<2>(batch, q, block, chunk_index, begin, end);
    if (q < batch.count) weigh_dimensions<1>(batch, q, block, chunk_index, begin, end);
    weigh_alone(shared_end, start + kAttentionChunk);
  }
  for (int q = 0; q < batch.count; ++q) {
    const Query& query = batch.queries[q];
    if (query.begin < start + kAttentionChunk && query.end > start) add(query.out, query.values, batch.value_dim, 1.0f);
  }
}

void attend(QueryBatch& batch) {
  score_positions(batch);
  exponentiate_scores(batch);
  for (int q = 0; q < batch.count; ++q) {
    for (int64_t d = 0; d < batch.value_dim; ++d) batch.queries[q].out[d] = 0.0f;
  }
  for (int64_t chunk = 0; chunk < batch.chunks; ++chunk) weigh_chunk(batch, batch.first_chunk + chunk);
  for (int q = 0; q < batch.count; ++q) {
    float* out = batch.queries[q].out;
    const Vector denominator = Simd::broadcast(batch.queries[q].denominator);
    for_each_vector(batch.value_dim,
                    [=](int64_t d, auto load, auto store) { store(out + d, Simd::divide(load(out + d), denominator)); });
  }
}

// Finds where the batch's scores, padded queries and value sums live in scratch, and what it sees.
void place_batch(QueryBatch& batch, float* scratch) {
  batch.begin = batch.queries[0].begin;
  batch.end = batch.queries[0].end;
  for (int q = 1; q < batch.count; ++q) {
    batch.begin = at_most(batch.begin, batch.queries[q].begin);
    batch.end = at_least(batch.end, batch.queries[q].end);
  }
  batch.first_chunk = batch.begin / kAttentionChunk;
  batch.chunks = (batch.end - 1) / kAttentionChunk + 1 - batch.first_chunk;
  batch.keys = scratch;
  scratch += kTileRows * batch.padded_dim;
  for (int64_t i = 0; i < kTileRows * batch.padded_dim; ++i) batch.keys[i] = 0.0f;
  for (int q = 0; q < batch.count; ++q) {
    Query& query = batch.queries[q];
    query.values = scratch;
    float* padded = scratch + column_blocks(batch.value_dim) * kLanes;
    query.scores = padded + batch.padded_dim;
    scratch = query.scores + batch.chunks * kAttentionChunk;
    if (batch.padded_dim == batch.head_dim) continue;
    for (int64_t d = 0; d < batch.padded_dim; ++d) padded[d] = d < batch.head_dim ? query.vector[d] : 0.0f;
    query.vector = padded;
  }
}

// Rows [first_row, first_row + rows) of some heads, which share a key-value head.
void attention(const AttentionJob& job, int first_row, int rows, int first_head, int heads, float* scratch) {
  const AttentionShape& shape = job.shape;
  QueryBatch batch;
  batch.values_in_keys = shape.values_in_keys;
  batch.has_sinks = shape.sinks != nullptr;
  batch.kv_head = first_head / (shape.heads / shape.kv_heads);
  batch.head_dim = shape.head_dim;
  batch.padded_dim = column_blocks(shape.head_dim) * kLanes;
  batch.value_dim = shape.value_dim;
  batch.value_step = shape.values_in_keys ? shape.head_dim : shape.value_dim;
  batch.scale = shape.score_scale;
  batch.count = 0;
  for (int i = first_row; i < first_row + rows; ++i) {
    const AttentionRow& row = job.rows[i];
    for (int64_t head = first_head; head < first_head + heads; ++head) {
      const bool same_cache =
          batch.count > 0 && batch.cache.key_blocks == row.cache.key_blocks && batch.cache.value_blocks == row.cache.value_blocks;
      if (batch.count == kMaxQueries || (batch.count > 0 && !same_cache)) {
        place_batch(batch, scratch);
        attend(batch);
        batch.count = 0;
      }
      batch.cache = row.cache;
      Query& query = batch.queries[batch.count++];
      query.vector = job.queries + i * job.stride + head * shape.head_dim;
      query.out = job.out + (int64_t{i} * shape.heads + head) * shape.value_dim;
      query.sink = batch.has_sinks ? shape.sinks[head] : -__builtin_inff();
      query.end = int64_t{row.position} + 1;
      query.begin = shape.sliding_window > 0 ? at_least(0, query.end - shape.sliding_window) : 0;
    }
  }
  if (batch.count == 0) return;
  place_batch(batch, scratch);
  attend(batch);
}

}  // namespace
}  // namespace odmoe::cpu
