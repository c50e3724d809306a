// Attention of a batch of queries over one key-value head of one cache. Keys and values are read once for all of them; each query
// still gets exactly the result that it would get alone. There are three steps, because the greatest score must be known before any
// weight: scores of positions, weights of queries, values of dimensions. Each step can be cut into parts: the scores by positions,
// the weights by queries, the values by dimensions.
#pragma once
#include "kernels_queries.h"

namespace odmoe::cpu {
namespace {

// Keys, `step` floats apart, to prefetch into the second-level cache while other keys are multiplied. Passes over the same keys
// share the prefetches: a cache accepts a limited number of requests at a time, and further ones stall everything behind them.
struct KeysAhead {
  const float* first;  // null: none
  int64_t step;
  int begin;  // of four
  int end;
};

// Writes the dots of four keys, `step` floats apart, with kQueries queries into the queries' scores.
template <int kQueries>
void score_quad(const QueryBatch& batch, int first, const float* keys, int64_t step, const KeysAhead& ahead, int64_t index) {
  const float* x[kQueries];
  for (int q = 0; q < kQueries; ++q) x[q] = batch.queries[first + q].vector;
  const int64_t blocks = batch.padded_dim / kLanes;
  if constexpr (kPairs == 1) {
    Vector sums[kQueries][kTileRows][2];
#pragma GCC unroll 24
    for (int i = 0; i < kQueries * kTileRows * 2; ++i) sums[i / 8][i / 2 % 4][i % 2] = Simd::zero();
    for (int64_t column = 0; column < blocks * kLanes; column += kLanes) {
      for (int r = ahead.begin; r < ahead.end; ++r) {
        __builtin_prefetch(ahead.first + r * ahead.step + column, 0, 2);
        __builtin_prefetch(ahead.first + r * ahead.step + column + 16, 0, 2);
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

// Positions whose keys stay in the second-level cache while groups of queries pass over them, and floats of the queries of one
// group, which stay in the first-level cache.
constexpr int64_t kScorePositions = 32;
constexpr int64_t kGroupFloats = 5120;

// Scores positions [begin, end), four at a time. Positions of a quad or chunk that a query does not see are computed, too, and
// ignored later.
void score_positions(const QueryBatch& batch, int64_t begin, int64_t end) {
  const int group = static_cast<int>(at_least(3, kGroupFloats / batch.padded_dim / 3 * 3));
  for (int64_t stretch = begin / kTileRows * kTileRows; stretch < end; stretch += kScorePositions) {
    for (int first = 0; first < batch.count; first += group) {
      const int last = static_cast<int>(at_most(batch.count, first + group));
      for (int64_t position = stretch; position < at_most(end, stretch + kScorePositions); position += kTileRows) {
        const int64_t chunk = position / kAttentionChunk;
        const float* key = batch.keys_of(chunk) + position % kAttentionChunk * batch.head_dim;
        int64_t step = batch.head_dim;
        const float* const next = first == 0 ? batch.ahead(chunk, position % kAttentionChunk, kScorePositions, false) : nullptr;
        if (batch.padded()) {
          for (int64_t i = 0; i < kTileRows * batch.padded_dim; ++i) {
            const int64_t d = i % batch.padded_dim;
            batch.keys[i] = d < batch.head_dim ? key[i / batch.padded_dim * step + d] : 0.0f;
          }
          key = batch.keys;
          step = batch.padded_dim;
        }
        const int64_t index = position - batch.first_chunk * kAttentionChunk;
        // Four queries are two pairs; a single query would leave the multipliers waiting for keys.
        int q = first;
        int pass = 0;
        const int passes = (last - first + 2) / 3;
        const auto share = [&]() -> KeysAhead {
          if (next == nullptr) return {nullptr, 0, 0, 0};
          const int begin = kTileRows * pass / passes;
          return {next, batch.head_dim, begin, kTileRows * ++pass / passes};
        };
        for (; last - q >= 3 && last - q != 4; q += 3) score_quad<3>(batch, q, key, step, share(), index);
        for (; last - q >= 2; q += 2) score_quad<2>(batch, q, key, step, share(), index);
        if (last - q == 1) score_quad<1>(batch, q, key, step, share(), index);
      }
    }
  }
}

// Dots become exp(score - greatest); scores of positions that the query does not see first become minus infinity, so that their
// weight is 0.
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

// Numbers of queries, and of vectors of dimensions, whose sums fit in the registers.
constexpr int kWideQueries = 4;
constexpr int kWideVectors = kWidth == 8 ? 2 : 4;
// Positions whose values (in kWideVectors vectors) stay in the first-level cache while groups of queries pass over them.
constexpr int64_t kValuePositions = 64;

// Part of a chunk: positions [begin, end) from its start on, and dimensions [first_dim, last_dim).
struct ValuePart {
  const float* block;
  int64_t chunk_index;
  int64_t begin;
  int64_t end;
  int64_t first_dim;
  int64_t last_dim;
  const float* ahead;  // values to prefetch meanwhile, from position `begin` on; null: none
};

// Groups of queries that pass over the same values share the prefetches: this group prefetches at every `groups`th position.
struct FetchTurn {
  int groups;
  int group;
};

// values += p * v over the part's positions, for kQueries queries and kWide vectors of dimensions from `dim`.
template <int kQueries, int kWide, bool kFetch>
ODMOE_INLINE void weigh(const QueryBatch& batch, int first, const ValuePart& part, int64_t dim, FetchTurn turn) {
  Vector sums[kQueries][kWide];
#pragma GCC unroll 16
  for (int i = 0; i < kQueries * kWide; ++i) {
    sums[i / kWide][i % kWide] = Simd::load(batch.queries[first + i / kWide].values + dim + i % kWide * kWidth);
  }
  const float* weights[kQueries];
#pragma GCC unroll 4
  for (int q = 0; q < kQueries; ++q) weights[q] = batch.queries[first + q].scores + part.chunk_index;
  const int64_t step = batch.value_step;
  const float* value = part.block + part.begin * step + dim;
  int wait = turn.group;
  for (int64_t p = part.begin; p < part.end; ++p, value += step) {
    if constexpr (kFetch) {
      if (--wait < 0) {
        wait = turn.groups - 1;
        const float* const line = part.ahead + (p - part.begin) * step + dim;
        for (int v = 0; v < kWide * kWidth; v += 16) __builtin_prefetch(line + v, 0, 2);
      }
    }
    Vector row[kWide];
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) {
      row[v] = Simd::load(value + v * kWidth);
      Simd::keep_in_register(row[v]);
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

template <int kQueries>
ODMOE_INLINE void weigh_queries(const QueryBatch& batch, int first, const ValuePart& part, int64_t dim, int64_t vectors,
                                FetchTurn turn) {
  if (vectors == 1) return weigh<kQueries, 1, false>(batch, first, part, dim, turn);
  if (part.ahead != nullptr) return weigh<kQueries, kWideVectors, true>(batch, first, part, dim, turn);
  weigh<kQueries, kWideVectors, false>(batch, first, part, dim, turn);
}

// Adds the values of a part for queries [first, last).
void weigh_part(const QueryBatch& batch, int first, int last, const ValuePart& part) {
  int64_t dim = part.first_dim;
  while (dim + kWidth <= part.last_dim) {
    const int64_t vectors = dim + kWideVectors * kWidth <= part.last_dim ? kWideVectors : 1;
    int q = first;
    const int count = last - first;
    FetchTurn turn{count / kWideQueries + count % kWideQueries / 2 + count % 2, 0};
    for (; q + kWideQueries <= last; q += kWideQueries, ++turn.group) {
      weigh_queries<kWideQueries>(batch, q, part, dim, vectors, turn);
    }
    for (; q + 2 <= last; q += 2, ++turn.group) weigh_queries<2>(batch, q, part, dim, vectors, turn);
    if (q < last) weigh_queries<1>(batch, q, part, dim, vectors, turn);
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

// Computes dimensions [first_dim, last_dim) of one chunk's value sums, then adds them to the outputs.
void weigh_chunk(const QueryBatch& batch, int64_t chunk, int64_t first_dim, int64_t last_dim) {
  const int64_t start = chunk * kAttentionChunk;
  ValuePart part{batch.values_of(chunk), start - batch.first_chunk * kAttentionChunk, 0, 0, first_dim, last_dim, nullptr};
  // Positions that all queries see are processed together; the others are processed query by query, in order.
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
      part.ahead = batch.ahead(chunk, part.begin, kValuePositions, true);
      weigh_part(batch, 0, batch.count, part);
    }
    part.ahead = nullptr;
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

// Adds the chunks of positions [begin, end), which are whole chunks, in dimensions [first_dim, last_dim). Chunks come in rising
// order: the first one that the batch sees begins its outputs, the last one finishes them.
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
