// Attention over a sequence's keys and values: usual and latent attention.
#include <array>
#include <vector>

#include "chosen_blocks.h"
#include "chosen_positions.h"
#include "mixers.h"

namespace odmoe {
namespace {

// The layout of a row's projections: all queries, then keys, values and the gates of the output.
struct AttentionRows {
  AttentionRows(float* first, const AttentionMixer& of, int count)
      : mixer(of),
        n(count),
        stride(row_floats(of)),
        queries(first),
        keys(queries + of.query_size()),
        values(keys + of.key_size()),
        gates(values + of.value_size()) {}

  static int64_t row_floats(const AttentionMixer& of) { return of.query_size() + of.key_size() + of.value_size() + of.gate_size(); }
  Vectors heads(float* from, int count) const { return {from, stride, mixer.head_dim, n, count, mixer.head_dim}; }
  Vectors value_heads() const { return {values, stride, mixer.value_head(), n, mixer.kv_heads, mixer.value_head()}; }
  Vectors whole(float* from, int64_t size) const { return {from, stride, 0, n, 1, static_cast<int>(size)}; }

  const AttentionMixer& mixer;
  int n;
  int64_t stride;
  float* queries;
  float* keys;
  float* values;
  float* gates;
};

void project(PassState& pass, const AttentionRows& rows, const DenseWeights& weights) {
  const AttentionMixer& mixer = rows.mixer;
  std::array<Product, 4> products;
  int count = 0;
  const auto add = [&](float* out, DenseRole role) {
    products[static_cast<size_t>(count++)] = {out, rows.stride, &weights.matrix(role), pass.normed.floats(), pass.hidden(), rows.n};
  };
  // All in one call, so that threads synchronize once; the formats may differ.
  add(rows.queries, DenseRole::query);
  add(rows.keys, DenseRole::key);
  if (!mixer.keys_are_values) add(rows.values, DenseRole::value);
  if (mixer.output_gate) add(rows.gates, DenseRole::output_gate);
  Backend& backend = pass.backend();
  backend.multiply(products.data(), count);
  if (mixer.bias) {
    backend.add_bias(rows.whole(rows.queries, mixer.query_size()), weights.vector(DenseRole::query_bias));
    backend.add_bias(rows.whole(rows.keys, mixer.key_size()), weights.vector(DenseRole::key_bias));
  }
  if (mixer.keys_are_values) {
    backend.copy_vectors(rows.whole(rows.values, mixer.key_size()), rows.whole(rows.keys, mixer.key_size()));
  } else if (mixer.bias) {
    backend.add_bias(rows.whole(rows.values, mixer.value_size()), weights.vector(DenseRole::value_bias));
  }
}

void normalize_queries_and_keys(PassState& pass, const AttentionRows& rows, const DenseWeights& weights) {
  const AttentionMixer& mixer = rows.mixer;
  if (mixer.query_key_norm == QueryKeyNorm::none) return;
  const bool per_head = mixer.query_key_norm == QueryKeyNorm::head;
  const auto normalize = [&](float* from, int heads, DenseRole role) {
    const int64_t size = int64_t{heads} * mixer.head_dim;
    const Vectors vectors = per_head ? rows.heads(from, heads) : rows.whole(from, size);
    pass.backend().normalize({.out = vectors,
                              .in = vectors,
                              .weight = weights.vector(role),
                              .divisor = static_cast<float>(vectors.size),
                              .epsilon = mixer.norm_epsilon});
  };
  normalize(rows.queries, mixer.heads, DenseRole::query_norm);
  normalize(rows.keys, mixer.kv_heads, DenseRole::key_norm);
}

// Keys are behind queries, so that one call rotates both.
void rotate_heads(PassState& pass, const AttentionRows& rows) {
  if (!rows.mixer.rotary) return;
  const RotaryShape& rotary = *rows.mixer.rotary;
  const RopeAngles angles = pass.angles(rotary.rope);
  Vectors heads = rows.heads(rows.queries + rotary.offset, rows.mixer.heads + rows.mixer.kv_heads);
  heads.size = 2 * angles.pairs;
  pass.backend().rotate({heads, angles.cos, angles.sin, rotary.pairing});
}

void prepare_heads(PassState& pass, const AttentionRows& rows, const DenseWeights& weights) {
  const AttentionMixer& mixer = rows.mixer;
  const bool clipped_later = mixer.query_key_norm == QueryKeyNorm::all && !mixer.norm_after_rotation;
  // Queries, keys and values follow one another.
  const Vectors all = rows.whole(rows.queries, mixer.query_size() + mixer.key_size() + mixer.value_size());
  if (mixer.clip > 0 && !clipped_later) pass.backend().clip(all, mixer.clip);
  if (!mixer.norm_after_rotation) normalize_queries_and_keys(pass, rows, weights);
  if (mixer.clip > 0 && clipped_later) pass.backend().clip(all, mixer.clip);
  if (mixer.value_norm) {
    const Vectors values = rows.value_heads();
    pass.backend().normalize(
        {.out = values, .in = values, .divisor = static_cast<float>(values.size), .epsilon = mixer.norm_epsilon});
  }
  rotate_heads(pass, rows);
  if (mixer.norm_after_rotation) normalize_queries_and_keys(pass, rows, weights);
}

// Rows of latent attention: `heads` queries of key_size, and behind them the key. Gates of the output are rows of their own.
struct LatentRows {
  float* queries;
  float* key;
  int64_t stride;
  float* gates;
};

// Computes low-rank queries or, without them, queries, and latents and gates in one call.
void project_latent(PassState& pass, const LatentMixer& mixer, const DenseWeights& weights, float* low, float* queries,
                    const LatentRows& rows) {
  const int n = pass.count();
  const int64_t query_size = int64_t{mixer.heads} * (mixer.nope_size + mixer.rope_size);
  const bool has_low = mixer.query_rank > 0;
  Backend& backend = pass.backend();
  const float* const in = pass.normed.floats();
  std::array<Product, 3> products;
  products[0] = {rows.key, rows.stride, &weights.matrix(DenseRole::latent), in, pass.hidden(), n};
  products[1] = {has_low ? low : queries,
                 has_low ? mixer.query_rank : query_size,
                 &weights.matrix(has_low ? DenseRole::query_low : DenseRole::query),
                 in,
                 pass.hidden(),
                 n};
  if (mixer.output_gate) {
    products[2] = {rows.gates, mixer.gate_size(), &weights.matrix(DenseRole::output_gate), in, pass.hidden(), n};
  }
  backend.multiply(products.data(), mixer.output_gate ? 3 : 2);
  if (has_low) {
    const Vectors vectors{low, mixer.query_rank, 0, n, 1, mixer.query_rank};
    backend.normalize({.out = vectors,
                       .in = vectors,
                       .weight = weights.vector(DenseRole::query_low_norm),
                       .divisor = static_cast<float>(mixer.query_rank),
                       .epsilon = mixer.norm_epsilon});
    backend.matmul(queries, query_size, weights.matrix(DenseRole::query), low, mixer.query_rank, n);
  }
  const Vectors latents{rows.key, rows.stride, 0, n, 1, mixer.latent_size};
  backend.normalize({.out = latents,
                     .in = latents,
                     .weight = weights.vector(DenseRole::latent_norm),
                     .divisor = static_cast<float>(mixer.latent_size),
                     .epsilon = mixer.norm_epsilon});
}

void rotate_latent(PassState& pass, const LatentMixer& mixer, float* queries, const LatentRows& rows) {
  const int64_t query_head = mixer.nope_size + mixer.rope_size;
  const int n = pass.count();
  if (mixer.rotary) {
    const RotaryShape& rotary = *mixer.rotary;
    const RopeAngles angles = pass.angles(rotary.rope);
    const int rotated = 2 * angles.pairs;
    float* const first_query = queries + mixer.nope_size + rotary.offset;
    float* const key = rows.key + mixer.latent_size + rotary.offset;
    pass.backend().rotate(
        {{first_query, mixer.heads * query_head, query_head, n, mixer.heads, rotated}, angles.cos, angles.sin, rotary.pairing});
    pass.backend().rotate({{key, rows.stride, 0, n, 1, rotated}, angles.cos, angles.sin, rotary.pairing});
  }
  if (pass.queries_scaled) {
    const auto size = static_cast<int>(query_head);
    const Vectors heads{queries, mixer.heads * query_head, query_head, n, mixer.heads, size};
    // Every head of a row takes the same factors.
    pass.backend().multiply_elements(heads, heads, {pass.query_factors.floats(), pass.query_floats, 0, n, mixer.heads, size});
  }
  if (mixer.rope_size == 0) return;
  pass.backend().copy_vectors({rows.queries + mixer.latent_size, rows.stride, mixer.key_size(), n, mixer.heads, mixer.rope_size},
                              {queries + mixer.nope_size, mixer.heads * query_head, query_head, n, mixer.heads, mixer.rope_size});
}

}  // namespace

void set_attention_rows(PassState& pass, int layer) {
  for (const SequenceRun& run : pass.runs) run.sequence->check_own_cache(layer, run.position, run.position + run.rows);
  for (size_t i = 0; i < pass.attention_rows.size(); i++) {
    pass.attention_rows[i] = {pass.row_sequences[i]->cache(layer), pass.positions[i]};
  }
}

void multiply_heads(PassState& pass, const std::vector<StoredMatrix>& matrices, float* out, int64_t out_stride, int64_t out_step,
                    const float* in, int64_t in_stride, int64_t in_step) {
  std::vector<Product> products(matrices.size());
  for (size_t head = 0; head < products.size(); head++) {
    const auto h = static_cast<int64_t>(head);
    products[head] = {out + h * out_step, out_stride, &matrices[head].matrix, in + h * in_step, in_stride, pass.count()};
  }
  pass.backend().multiply(products.data(), static_cast<int>(products.size()));
}

const float* mix_attention(PassState& pass, const AttentionMixer& mixer, const DenseWeights& weights, int layer) {
  const int n = pass.count();
  Scratch scratch = pass.scratch();
  const AttentionRows rows(scratch.take(n * AttentionRows::row_floats(mixer)), mixer, n);
  float* const attended = scratch.take(n * mixer.output_size());
  project(pass, rows, weights);
  prepare_heads(pass, rows, weights);
  set_attention_rows(pass, layer);
  const AttentionShape shape{.heads = mixer.heads,
                             .kv_heads = mixer.kv_heads,
                             .head_dim = mixer.head_dim,
                             .value_dim = mixer.value_head(),
                             .values_in_keys = false,
                             .sliding_window = mixer.window,
                             .score_scale = mixer.score_scale,
                             .sinks = weights.vector(DenseRole::sinks)};
  if (mixer.block_indexer) {
    pass.backend().store_key_values(pass.attention_rows.data(), rows.keys, rows.values, rows.stride, n, shape);
    choose_blocks(pass, mixer, weights, layer, scratch);
    attend_blocks(pass, attended, rows.queries, rows.stride, *mixer.block_indexer, shape, scratch);
  } else {
    pass.backend().store_and_attend(attended, pass.attention_rows.data(), rows.queries, rows.keys, rows.values, rows.stride, n,
                                    shape);
  }
  if (mixer.value_scale != 1) pass.backend().scale(attended, n * mixer.output_size(), mixer.value_scale);
  if (mixer.output_gate) {
    const int value_head = mixer.value_head();
    const int width = mixer.gate_per_head ? 1 : value_head;
    pass.backend().gate({attended, mixer.output_size(), value_head, n, mixer.heads, value_head},
                        {rows.gates, rows.stride, width, n, mixer.heads, width}, mixer.output_gate_function);
  }
  return attended;
}

const float* mix_latent(PassState& pass, const LatentMixer& mixer, const DenseWeights& weights, int layer) {
  const int n = pass.count();
  const int64_t heads = mixer.heads;
  const int64_t query_head = mixer.nope_size + mixer.rope_size;
  const int64_t key_size = mixer.key_size();
  Scratch scratch = pass.scratch();
  float* const low = scratch.take(n * mixer.query_rank);
  float* const queries = scratch.take(n * heads * query_head);
  float* const first = scratch.take(n * (heads + 1) * key_size);
  float* const attended = scratch.take(n * heads * mixer.latent_size);
  float* const values = scratch.take(n * heads * mixer.value_size);
  float* const gates = scratch.take(n * mixer.gate_size());
  const LatentRows rows{first, first + heads * key_size, (heads + 1) * key_size, gates};
  project_latent(pass, mixer, weights, low, queries, rows);
  rotate_latent(pass, mixer, queries, rows);
  multiply_heads(pass, weights.matrices(DenseRole::key_expansion), rows.queries, rows.stride, key_size, queries, heads * query_head,
                 query_head);
  set_attention_rows(pass, layer);
  const AttentionShape shape{.heads = mixer.heads,
                             .kv_heads = 1,
                             .head_dim = mixer.key_size(),
                             .value_dim = mixer.latent_size,
                             .values_in_keys = true,
                             .sliding_window = 0,
                             .score_scale = mixer.score_scale,
                             .sinks = weights.vector(DenseRole::sinks)};
  if (mixer.indexer || mixer.shares_indexer) {
    pass.backend().store_key_values(pass.attention_rows.data(), rows.key, nullptr, rows.stride, n, shape);
    if (mixer.indexer) choose_positions(pass, mixer, weights, low, scratch);
    attend_chosen(pass, attended, rows.queries, rows.stride, shape);
  } else {
    pass.backend().store_and_attend(attended, pass.attention_rows.data(), rows.queries, rows.key, nullptr, rows.stride, n, shape);
  }
  multiply_heads(pass, weights.matrices(DenseRole::value_expansion), values, heads * mixer.value_size, mixer.value_size, attended,
                 heads * mixer.latent_size, mixer.latent_size);
  if (mixer.output_gate) {
    const Vectors gated{values, mixer.output_size(), mixer.value_size, n, mixer.heads, mixer.value_size};
    Vectors by = gated;
    by.first = gates;
    pass.backend().gate(gated, by, Gate::sigmoid);
  }
  return values;
}

}  // namespace odmoe
