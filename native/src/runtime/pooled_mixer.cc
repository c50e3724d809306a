// Attention to a window of positions and to entries of pools of earlier ones (DeepSeek-V4).
#include <vector>

#include "mixers.h"
#include "pools.h"

namespace odmoe {
namespace {

// The layout of a row's projections: the key of its position, and the values and gates of its pool, as the cache has them.
struct PooledRows {
  float* low;
  float* queries;
  float* vectors;
  int64_t stride;
};

void normalize_vectors(PassState& pass, const Vectors& vectors, const float* weight, float epsilon) {
  pass.backend().normalize(
      {.out = vectors, .in = vectors, .weight = weight, .divisor = static_cast<float>(vectors.size), .epsilon = epsilon});
}

void project(PassState& pass, const PooledMixer& mixer, const DenseWeights& weights, const PooledRows& rows) {
  const int n = pass.count();
  const int64_t dim = mixer.head_dim;
  const float* const in = pass.normed.floats();
  std::vector<Product> products = {
      {rows.low, mixer.query_rank, &weights.matrix(DenseRole::query_low), in, pass.hidden(), n},
      {rows.vectors, rows.stride, &weights.matrix(DenseRole::key), in, pass.hidden(), n},
  };
  if (mixer.pools) {
    float* const values = rows.vectors + dim;
    products.push_back({values, rows.stride, &weights.matrix(DenseRole::pool_value), in, pass.hidden(), n});
    products.push_back(
        {values + mixer.pools->parts() * dim, rows.stride, &weights.matrix(DenseRole::pool_gate), in, pass.hidden(), n});
  }
  Backend& backend = pass.backend();
  backend.multiply(products.data(), static_cast<int>(products.size()));
  const float epsilon = mixer.norm_epsilon;
  normalize_vectors(pass, {rows.low, mixer.query_rank, 0, n, 1, mixer.query_rank}, weights.vector(DenseRole::query_low_norm),
                    epsilon);
  backend.matmul(rows.queries, mixer.query_size(), weights.matrix(DenseRole::query), rows.low, mixer.query_rank, n);
  normalize_vectors(pass, {rows.queries, mixer.query_size(), dim, n, mixer.heads, mixer.head_dim}, nullptr, epsilon);
  normalize_vectors(pass, {rows.vectors, rows.stride, 0, n, 1, mixer.head_dim}, weights.vector(DenseRole::key_norm), epsilon);
}

// Vectors of the rotated dimensions of `heads` heads a row.
Vectors rotated(float* first, const RotaryShape& rotary, int64_t stride, int64_t dim, int rows, int heads, int pairs) {
  return {first + rotary.offset, stride, dim, rows, heads, 2 * pairs};
}

void rotate(PassState& pass, const PooledMixer& mixer, const PooledRows& rows) {
  const RopeAngles angles = pass.angles(mixer.rotary.rope);
  const int n = pass.count();
  const auto turn = [&](float* first, int64_t stride, int heads) {
    pass.backend().rotate({rotated(first, mixer.rotary, stride, mixer.head_dim, n, heads, angles.pairs), angles.cos, angles.sin,
                           mixer.rotary.pairing});
  };
  turn(rows.queries, mixer.query_size(), mixer.heads);
  turn(rows.vectors, rows.stride, 1);
}

}  // namespace

const float* mix_pooled(PassState& pass, const PooledMixer& mixer, const DenseWeights& weights, int layer) {
  const int n = pass.count();
  const int64_t heads_size = mixer.query_size();
  const int64_t low_size = int64_t{mixer.output_groups} * mixer.output_rank;
  Scratch scratch = pass.scratch();
  PooledRows rows{};
  rows.stride = (1 + mixer.pool_vectors()) * int64_t{mixer.head_dim};
  rows.low = scratch.take(n * int64_t{mixer.query_rank});
  rows.queries = scratch.take(n * heads_size);
  rows.vectors = scratch.take(n * rows.stride);
  float* const attended = scratch.take(n * heads_size);
  float* const low = scratch.take(n * low_size);
  project(pass, mixer, weights, rows);
  rotate(pass, mixer, rows);
  set_attention_rows(pass, layer);
  pass.backend().store_key_values(pass.attention_rows.data(), rows.vectors, nullptr, rows.stride, n,
                                  vectors_alone(1 + mixer.pool_vectors(), mixer.head_dim));
  const AttentionShape shape{.heads = mixer.heads,
                             .kv_heads = 1,
                             .head_dim = mixer.head_dim,
                             .value_dim = mixer.head_dim,
                             .values_in_keys = true,
                             .sliding_window = mixer.pools ? 0 : mixer.window,
                             .score_scale = mixer.score_scale,
                             .sinks = weights.vector(DenseRole::sinks)};
  if (mixer.pools) {
    add_entries(pass, mixer, weights, scratch);
    const bool chooses = choose_entries(pass, mixer, weights, rows.low, scratch);
    attend_seen(pass, mixer, attended, rows.queries, shape, chooses);
  } else {
    pass.backend().attention(attended, pass.attention_rows.data(), rows.queries, heads_size, n, shape);
  }
  const RopeAngles angles = pass.angles(mixer.rotary.rope);
  pass.backend().rotate({rotated(attended, mixer.rotary, heads_size, mixer.head_dim, n, mixer.heads, angles.pairs), angles.cos,
                         angles.undoing_sin, mixer.rotary.pairing});
  multiply_heads(pass, weights.matrices(DenseRole::output_low), low, low_size, mixer.output_rank, attended, heads_size,
                 heads_size / mixer.output_groups);
  return low;
}

}  // namespace odmoe
