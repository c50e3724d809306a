// Attention of a batch of queries over one key-value head of one cache. Keys and values are read once for all of them; each query still
// gets exactly what it would get alone. Three steps, as the greatest score must be known before anything is weighed: scores of
// positions, weights of queries, values of dimensions. Each step can be cut into parts by what it is named after.
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
  float* scores;       // of positions from the first chunk of the batch on; then their exponentials
  float* values;       // value sums of the chunk in work
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
};

ODMOE_INLINE int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }
ODMOE_INLINE int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

// Where scores, value sums and padded queries live in scratch, and what the queries see (attention_scratch() has the same layout).
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

// Dots of four keys, `step` floats apart, with kQueries queries, into the queries' scores. `ahead`: keys to fetch meanwhile.
template <int kQueries>
void score_quad(const QueryBatch& batch, int first, const float* keys, int64_t step, const float* ahead, int64_t index) {
  const float* x[kQueries];
  for (int q = 0; q < kQueries; ++q) x[q] = batch.queries[first + q].vector;
  const int64_t blocks = batch.padded_dim / kLanes;
  if constexpr (kPairs == 1) {
    Vector sums[kQueries][kTileRows][2];
#pragma GCC unroll 24
    for (int i = 0; i < kQueries * kTileRows * 2; ++i) sums[i / 8][i / 2 % 4][i % 2] = Simd::zero();
    for (int64_t column = 0; column < blocks * kLanes; column += kLanes) {
      if (ahead != nullptr) {
#pragma GCC unroll 8
        for (int line = 0; line < 2 * kTileRows; ++line) {
          __builtin_prefetch(ahead + line / 2 * step + column + line % 2 * 16, 0, 2);
        }
      }
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        Vector in[kQueries];
#pragma GCC unroll 3
        for (int q = 0; q < kQueries; ++q) in[q] = Simd::load(x[q] + column + half * 16);
#pragma GCC unroll 4
        for (int r = 0; r < kTileRows; ++r) {
          Vector key = Simd::load(keys + r * step + column + half * 16);
          Simd::keep_in_register(key);
#pragma GCC unroll 3
          for (int q = 0; q < kQueries; ++q) sums[q][r][half] = Simd::fma(in[q], key, sums[q][r][half]);
        }
      }
    }
#pragma GCC unroll 3
    for (int q = 0; q < kQueries; ++q) Simd::fold_rows(sums[q], batch.queries[first + q].scores + index);
  } else {
    float dots[kQueries][kTileRows];
    alignas(64) float parked[kTileRows * kQueries * kLanes];
    Run run;
    for (int q = 0; q < kQueries; ++q) run.x[q] = x[q];
    run.blocks = blocks;
    run.parked = parked;
    run.resume = false;
    run.finish = true;
    run.ahead = nullptr;
    run_tile<kQueries, FetchNothing>(Fp32Rows{keys, step}, run, dots);
    for (int q = 0; q < kQueries; ++q) {
      for (int r = 0; r < kTileRows; ++r) batch.queries[first + q].scores[index + r] = dots[q][r];
    }
  }
}

// Positions whose keys go through the second cache while groups of queries pass over them, and floats of the queries of such a group:
// they stay in the first cache.
constexpr int64_t kScorePositions = 32;
constexpr int64_t kGroupFloats = 5120;

// Positions [begin, end), four at a time. Those of a quad or chunk that a query does not see are computed and later ignored.
void score_positions(const QueryBatch& batch, int64_t begin, int64_t end) {
  const int group = static_cast<int>(at_least(3, kGroupFloats / batch.padded_dim / 3 * 3));
  for (int64_t stretch = begin / kTileRows * kTileRows; stretch < end; stretch += kScorePositions) {
    for (int first = 0; first < batch.count; first += group) {
      const int last = static_cast<int>(at_most(batch.count, first + group));
      for (int64_t position = stretch; position < at_most(end, stretch + kScorePositions); position += kTileRows) {
        const float* key = batch.keys_of(position / kAttentionChunk) + position % kAttentionChunk * batch.head_dim;
        int64_t step = batch.head_dim;
        const float* ahead = first == 0 ? key + kScorePositions * step : nullptr;
        if (batch.padded()) {
          for (int64_t i = 0; i < kTileRows * batch.padded_dim; ++i) {
            const int64_t d = i % batch.padded_dim;
            batch.keys[i] = d < batch.head_dim ? key[i / batch.padded_dim * step + d] : 0.0f;
          }
          key = batch.keys;
          step = batch.padded_dim;
        }
        const int64_t index = position - batch.first_chunk * kAttentionChunk;
        // Four are two pairs: one alone would leave the multipliers waiting for keys.
        int q = first;
        for (; last - q >= 3 && last - q != 4; q += 3, ahead = nullptr) score_quad<3>(batch, q, key, step, ahead, index);
        for (; last - q >= 2; q += 2, ahead = nullptr) score_quad<2>(batch, q, key, step, ahead, index);
        if (last - q == 1) score_quad<1>(batch, q, key, step, ahead, index);
      }
    }
  }
}

// Dots become exp(score - greatest); what the query does not see becomes minus infinity first, so it counts nothing.
void exponentiate_scores(const QueryBatch& batch, const Query& query) {
  const int64_t base = batch.first_chunk * kAttentionChunk;
  const int64_t first = query.begin / kAttentionChunk * kAttentionChunk - base;
  const int64_t last = (query.end - 1) / kAttentionChunk * kAttentionChunk + kAttentionChunk - base;
  const auto hide = [&](int64_t from, int64_t to) {
    for (int64_t p = from; p < to; ++p) query.scores[p] = -__builtin_inff();
  };
  hide(first, query.begin - base);
  hide(query.end - base, last);
  const Vector scale = Simd::broadcast(batch.scale);
  Vector greatest = Simd::broadcast(-__builtin_inff());
  for (int64_t p = first; p < last; p += kWidth) {
    const Vector score = Simd::multiply(Simd::load(query.scores + p), scale);
    Simd::store(query.scores + p, score);
    greatest = Simd::greater(score, greatest);
  }
  float lanes[kWidth];
  Simd::store(lanes, greatest);
  float most = query.sink > lanes[0] ? query.sink : lanes[0];
  for (int lane = 1; lane < kWidth; ++lane) most = lanes[lane] > most ? lanes[lane] : most;
  float denominator = 0.0f;
  for (int64_t chunk = first; chunk < last; chunk += kAttentionChunk) {
    float* scores = query.scores + chunk;
    for (int64_t p = 0; p < kAttentionChunk; p += kWidth) {
      Simd::store(scores + p, exponential(Simd::subtract(Simd::load(scores + p), Simd::broadcast(most))));
    }
    denominator = denominator + fold_values(scores, kAttentionChunk);
  }
  if (batch.has_sinks) denominator = denominator + first_lane(exponential(Simd::broadcast(query.sink - most)));
  *query.denominator = denominator;
}

// Queries and vectors of dimensions whose sums fit the registers.
constexpr int kWideQueries = 4;
constexpr int kWideVectors = kWidth == 8 ? 2 : 4;
// Positions whose values, of so many dimensions, stay in the first cache while groups of queries pass over them.
constexpr int64_t kValuePositions = 64;

// values += p * v over positions [begin, end) of a chunk, for kQueries queries and kWide vectors of dimensions from `dim`.
template <int kQueries, int kWide, bool kFetch>
ODMOE_INLINE void weigh(const QueryBatch& batch, int first, const float* block, int64_t chunk_index, int64_t begin, int64_t end,
                        int64_t dim) {
  Vector sums[kQueries][kWide];
#pragma GCC unroll 16
  for (int i = 0; i < kQueries * kWide; ++i) {
    sums[i / kWide][i % kWide] = Simd::load(batch.queries[first + i / kWide].values + dim + i % kWide * kWidth);
  }
  const float* weights[kQueries];
#pragma GCC unroll 4
  for (int q = 0; q < kQueries; ++q) weights[q] = batch.queries[first + q].scores + chunk_index;
  const int64_t step = batch.value_step;
  const float* value = block + begin * step + dim;
  for (int64_t p = begin; p < end; ++p, value += step) {
    Vector row[kWide];
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) {
      row[v] = Simd::load(value + v * kWidth);
      Simd::keep_in_register(row[v]);
      if constexpr (kFetch) __builtin_prefetch(value + kValuePositions * step + v * kWidth, 0, 2);
    }
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q) {
      const Vector weight = Simd::broadcast(weights[q][p]);
#pragma GCC unroll 4
      for (int v = 0; v < kWide; ++v) sums[q][v] = Simd::fma(weight, row[v], sums[q][v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kQueries * kWide; ++i) {
    Simd::store(batch.queries[first + i / kWide].values + dim + i % kWide * kWidth, sums[i / kWide][i % kWide]);
  }
}

// Part of a chunk: positions [begin, end) from its start on, and dimensions [first_dim, last_dim).
struct ValuePart {
  const float* block;
  int64_t chunk_index;
  int64_t begin;
  int64_t end;
  int64_t first_dim;
  int64_t last_dim;
};

template <int kQueries>
ODMOE_INLINE void weigh_queries(const QueryBatch& batch, int first, const ValuePart& part, int64_t dim, int64_t vectors,
                                bool fetch) {
  if (vectors == 1) return weigh<kQueries, 1, false>(batch, first, part.block, part.chunk_index, part.begin, part.end, dim);
  if (fetch) return weigh<kQueries, kWideVectors, true>(batch, first, part.block, part.chunk_index, part.begin, part.end, dim);
  weigh<kQueries, kWideVectors, false>(batch, first, part.block, part.chunk_index, part.begin, part.end, dim);
}

// For queries [first, last).
void weigh_part(const QueryBatch& batch, int first, int last, const ValuePart& part) {
  int64_t dim = part.first_dim;
  while (dim + kWidth <= part.last_dim) {
    const int64_t vectors = dim + kWideVectors * kWidth <= part.last_dim ? kWideVectors : 1;
    int q = first;
    for (; q + kWideQueries <= last; q += kWideQueries) weigh_queries<kWideQueries>(batch, q, part, dim, vectors, q == first);
    for (; q + 2 <= last; q += 2) weigh_queries<2>(batch, q, part, dim, vectors, q == first);
    if (q < last) weigh_queries<1>(batch, q, part, dim, vectors, q == first);
    dim += vectors * kWidth;
  }
  for (; dim < part.last_dim; ++dim) {
    for (int q = first; q < last; ++q) {
      const Query& query = batch.queries[q];
      float sum = query.values[dim];
      for (int64_t p = part.begin; p < part.end; ++p) {
        sum = __builtin_fmaf(query.scores[part.chunk_index + p], part.block[p * batch.value_step + dim], sum);
      }
      query.values[dim] = sum;
    }
  }
}

// Dimensions [first_dim, last_dim) of one chunk's value sums, which are then added to the outputs.
void weigh_chunk(const QueryBatch& batch, int64_t chunk, int64_t first_dim, int64_t last_dim) {
  const int64_t start = chunk * kAttentionChunk;
  ValuePart part{batch.values_of(chunk), start - batch.first_chunk * kAttentionChunk, 0, 0, first_dim, last_dim};
  // Positions that all queries see are taken together; those that only some see, query by query, in order.
  int64_t shared_begin = start;
  int64_t shared_end = start + kAttentionChunk;
  for (int q = 0; q < batch.count; ++q) {
    shared_begin = at_least(shared_begin, batch.queries[q].begin);
    shared_end = at_most(shared_end, batch.queries[q].end);
    for (int64_t d = first_dim; d < last_dim; ++d) batch.queries[q].values[d] = 0.0f;
  }
  const bool shared = shared_begin < shared_end;
  const auto weigh_alone = [&](int64_t from, int64_t to) {
    for (int q = 0; q < batch.count; ++q) {
      part.begin = at_least(from, batch.queries[q].begin) - start;
      part.end = at_most(to, batch.queries[q].end) - start;
      if (part.begin < part.end) weigh_part(batch, q, q + 1, part);
    }
  };
  weigh_alone(start, shared ? shared_begin : start + kAttentionChunk);
  if (shared) {
    for (int64_t begin = shared_begin; begin < shared_end; begin += kValuePositions) {
      part.begin = begin - start;
      part.end = at_most(shared_end, begin + kValuePositions) - start;
      weigh_part(batch, 0, batch.count, part);
    }
    weigh_alone(shared_end, start + kAttentionChunk);
  }
  for (int q = 0; q < batch.count; ++q) {
    const Query& query = batch.queries[q];
    if (query.begin < start + kAttentionChunk && query.end > start) {
      add(query.out + first_dim, query.values + first_dim, last_dim - first_dim, 1.0f);
    }
  }
}

void attention_scores(const AttentionJob& job, const AttentionBatch& of, int64_t begin, int64_t end) {
  const QueryBatch batch(job, of);
  score_positions(batch, at_least(begin, batch.begin), at_most(end, batch.end));
}

void attention_weights(const AttentionJob& job, const AttentionBatch& of, int begin, int end) {
  const QueryBatch batch(job, of);
  for (int q = begin; q < end; ++q) exponentiate_scores(batch, batch.queries[q]);
}

// Chunks of positions [begin, end), which are whole chunks, of dimensions [first_dim, last_dim). Chunks come in rising order: the first
// that the batch sees begins its outputs, the last finishes them.
void attention_values(const AttentionJob& job, const AttentionBatch& of, int64_t begin, int64_t end, int64_t first_dim,
                      int64_t last_dim) {
  const QueryBatch batch(job, of);
  const int64_t end_chunk = batch.first_chunk + batch.chunks;
  const int64_t first = at_least(batch.first_chunk, begin / kAttentionChunk);
  const int64_t last = at_most(end_chunk, (end + kAttentionChunk - 1) / kAttentionChunk);
  if (first >= last) return;
  if (first == batch.first_chunk) {
    for (int q = 0; q < batch.count; ++q) {
      for (int64_t d = first_dim; d < last_dim; ++d) batch.queries[q].out[d] = 0.0f;
    }
  }
  for (int64_t chunk = first; chunk < last; ++chunk) weigh_chunk(batch, chunk, first_dim, last_dim);
  if (last != end_chunk) return;
  for (int q = 0; q < batch.count; ++q) {
    float* const out = batch.queries[q].out + first_dim;
    const Vector denominator = Simd::broadcast(*batch.queries[q].denominator);
    for_each_vector(last_dim - first_dim,
                    [=](int64_t d, auto load, auto store) { store(out + d, Simd::divide(load(out + d), denominator)); });
  }
}

}  // namespace
}  // namespace odmoe::cpu
