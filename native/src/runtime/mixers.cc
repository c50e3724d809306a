#include "mixers.h"

#include <algorithm>

#include "chosen_blocks.h"
#include "chosen_positions.h"
#include "pools.h"
#include "residual_streams.h"

namespace odmoe {
namespace {

// Floats per row.
struct ScratchFloats {
  int64_t hidden;

  int64_t operator()(const AttentionMixer& mixer) const {
    return mixer.query_size() + mixer.key_size() + mixer.value_size() + mixer.gate_size() + mixer.output_size() +
           block_scratch_floats(mixer);
  }
  int64_t operator()(const LatentMixer& mixer) const {
    const int64_t heads = mixer.heads;
    return mixer.query_rank + heads * (mixer.nope_size + mixer.rope_size) + (heads + 1) * mixer.key_size() +
           heads * (mixer.latent_size + mixer.value_size) + (mixer.indexer ? index_scratch_floats(*mixer.indexer) : 0) +
           mixer.gate_size();
  }
  int64_t operator()(const DeltaMixer& mixer) const {
    return mixer.row_floats() + mixer.channels() + 2 * mixer.value_size() + 2 * int64_t{mixer.low_rank};
  }
  int64_t operator()(const PooledMixer& mixer) const {
    return mixer.query_rank + 2 * mixer.query_size() + (1 + mixer.pool_vectors()) * int64_t{mixer.head_dim} +
           int64_t{mixer.output_groups} * mixer.output_rank + pool_scratch_floats(mixer);
  }
  int64_t operator()(const ConvolutionMixer&) const { return 5 * hidden; }
  int64_t operator()(const StateSpaceMixer& mixer) const { return mixer.row_floats() + mixer.channels() + 2 * mixer.inner_size(); }
};

struct Mix {
  PassState& pass;
  const DenseWeights& weights;
  int layer;

  const float* operator()(const AttentionMixer& mixer) const { return mix_attention(pass, mixer, weights, layer); }
  const float* operator()(const LatentMixer& mixer) const { return mix_latent(pass, mixer, weights, layer); }
  const float* operator()(const DeltaMixer& mixer) const { return mix_delta(pass, mixer, weights, layer); }
  const float* operator()(const PooledMixer& mixer) const { return mix_pooled(pass, mixer, weights, layer); }
  const float* operator()(const StateSpaceMixer& mixer) const { return mix_state_space(pass, mixer, weights, layer); }
  const float* operator()(const ConvolutionMixer& mixer) const { return mix_convolution(pass, mixer, weights, layer); }
};

}  // namespace

int64_t mixer_scratch_floats(const LayerShape& layer, const ModelShape& shape, int rows) {
  // Recurrences also run undone rows again, in the same scratch.
  const int64_t most = is_recurrent(layer.mixer) ? std::max(rows, kSavedStateStep) : rows;
  return most * std::visit(ScratchFloats{shape.hidden_size}, layer.mixer) + Scratch::kParts * Scratch::kAlignment;
}

void normalize_hidden(PassState& pass, float* out, float* in, int rows, const float* weight, const float* bias) {
  const ModelShape& shape = pass.shape();
  const int size = pass.hidden();
  if (weight == nullptr) {
    pass.backend().copy_on_device(out, in, static_cast<uint64_t>(rows) * static_cast<uint64_t>(size) * sizeof(float));
    return;
  }
  if (shape.norm != NormKind::rms) {
    pass.backend().layer_norm(out, in, weight, bias, rows, size, shape.norm_epsilon);
    return;
  }
  pass.backend().normalize({.out = {out, size, 0, rows, 1, size},
                            .in = {in, size, 0, rows, 1, size},
                            .weight = weight,
                            .divisor = static_cast<float>(size),
                            .epsilon = shape.norm_epsilon});
}

void rms_normalize(PassState& pass, float* out, float* in, const float* weight) {
  pass.backend().normalize({.out = pass.rows_of(out),
                            .in = pass.rows_of(in),
                            .weight = weight,
                            .divisor = static_cast<float>(pass.hidden()),
                            .epsilon = pass.shape().norm_epsilon});
}

void run_mixer(PassState& pass, int layer, const DenseWeights& weights) {
  const LayerShape& shape = pass.shape().layers[static_cast<size_t>(layer)];
  Backend& backend = pass.backend();
  float* const residual = pass.residual.floats();
  float* const branch = pass.branch.floats();
  const int n = pass.count();
  normalize_hidden(pass, pass.normed.floats(), residual, n, weights.vector(DenseRole::mixer_norm),
                   weights.vector(DenseRole::mixer_norm_bias));
  const float* const mixed = std::visit(Mix{pass, weights, layer}, shape.mixer);
  const Matrix& output = weights.matrix(DenseRole::mixer_output);
  backend.matmul(branch, output.rows, output, mixed, output.columns, n);
  if (const float* bias = weights.vector(DenseRole::mixer_output_bias)) backend.add_bias(pass.rows_of(branch), bias);
  if (shape.mixer_output_norm) rms_normalize(pass, branch, branch, weights.vector(DenseRole::mixer_output_norm));
  add_output(pass, branch, pass.shape().residual_scale);
  if (shape.has_feed_forward()) take_streams(pass, layer, StreamPart::feed_forward);
  for (size_t i = 0; i < pass.row_sequences.size(); i++) pass.row_sequences[i]->written(layer, pass.positions[i] + 1);
}

}  // namespace odmoe
