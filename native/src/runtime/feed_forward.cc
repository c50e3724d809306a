#include "feed_forward.h"

#include <algorithm>

#include "mixers.h"
#include "residual_streams.h"

namespace odmoe {
namespace {

// The rows that experts take, or of which their smaller rows are made.
const float* routed_rows(const PassState& pass, const LayerShape& layer) {
  return layer.routed_norm ? pass.routed_input.floats() : pass.normed.floats();
}

float* router_input(PassState& pass, const LayerShape& layer) {
  return layer.router_norm ? pass.router_input.floats() : pass.normed.floats();
}

// Runs `always` for rows [first, first + rows), which must fit in its scratch.
void run_always_rows(PassState& pass, const GluShape& glu, const DenseWeights& weights, int first, int rows) {
  const int64_t hidden = pass.hidden();
  const int64_t size = glu.intermediate_size;
  const float* const in = pass.normed.floats() + first * hidden;
  float* const gate_up = pass.always_gate_up.floats();
  float* const activation = pass.always_activation.floats();
  const int64_t half = glu.gate_rows();
  const Product products[] = {{gate_up, 2 * half, &weights.matrix(DenseRole::always_gate), in, hidden, rows},
                              {gate_up + half, 2 * half, &weights.matrix(DenseRole::always_up), in, hidden, rows}};
  pass.backend().multiply(products, 2);
  pass.backend().glu(activation, gate_up, nullptr, rows, static_cast<int>(half), glu);
  pass.backend().matmul(pass.always_output.floats() + first * hidden, hidden, weights.matrix(DenseRole::always_down), activation,
                        size, rows);
}

// The experts that a layer's table names for the tokens of the pass's rows; null: it has no table.
const int32_t* given_experts(PassState& pass, const LayerShape& layer, const DenseWeights& weights) {
  if (!layer.routed->by_token) return nullptr;
  float* const given = pass.given_experts.floats();
  pass.backend().copy_rows(given, nullptr, weights.vector(DenseRole::token_experts), pass.token_ids.data(), pass.count(),
                           pass.shape().experts_per_token);
  return reinterpret_cast<const int32_t*>(given);
}

// The answer of the layer's router for `in`, rows x hidden. `along` is copied to the host together with it.
RouterChoice route(PassState& pass, const LayerShape& layer, const DenseWeights& weights, const float* in, RouterAnswer answer,
                   const HostCopy& along) {
  const ModelShape& shape = pass.shape();
  const int n = pass.count();
  const size_t places = static_cast<size_t>(n) * static_cast<size_t>(shape.experts_per_token);
  RouterChoice choice{std::vector<int32_t>(places), std::vector<float>(places), {}, {}};
  const bool wants_all = answer == RouterAnswer::all_scores;
  if (wants_all) {
    choice.logits.resize(static_cast<size_t>(n) * static_cast<size_t>(shape.experts));
    choice.scores.resize(choice.logits.size());
  }
  float* const logits = pass.router_logits.floats();
  Backend& backend = pass.backend();
  backend.matmul(logits, shape.experts, weights.matrix(DenseRole::router), in, pass.hidden(), n);
  if (const float* bias = weights.vector(DenseRole::router_bias)) {
    backend.add_bias({logits, shape.experts, 0, n, 1, shape.experts}, bias);
  }
  if (const float cap = layer.routed->logit_cap; cap != 0) backend.cap_logits(logits, int64_t{n} * shape.experts, 1, cap);
  backend.router({.host_experts = choice.experts.data(),
                  .host_weights = choice.weights.data(),
                  .logits = logits,
                  .n = n,
                  .experts = shape.experts,
                  .k = shape.experts_per_token,
                  .shape = *layer.routed,
                  .choice_bias = weights.vector(DenseRole::choice_bias),
                  .expert_scale = weights.vector(DenseRole::expert_scale),
                  .given = given_experts(pass, layer, weights),
                  .along = along,
                  .host_logits = wants_all ? choice.logits.data() : nullptr,
                  .host_scores = wants_all ? choice.scores.data() : nullptr});
  return choice;
}

}  // namespace

const float* expert_input(const PassState& pass, const LayerShape& layer) {
  return pass.shape().has_latent_experts() ? pass.latent_rows.floats() : routed_rows(pass, layer);
}

void prepare_feed_forward(PassState& pass, const LayerShape& layer, const DenseWeights& weights) {
  float* const residual = pass.residual.floats();
  // The rows of a parallel block are those that its mixer took.
  if (!layer.parallel) {
    normalize_hidden(pass, pass.normed.floats(), residual, pass.count(), weights.vector(DenseRole::feed_forward_norm),
                     weights.vector(DenseRole::feed_forward_norm_bias));
  }
  if (!layer.routed) return;
  if (layer.routed_norm) rms_normalize(pass, pass.routed_input.floats(), residual, weights.vector(DenseRole::routed_norm));
  if (layer.router_norm) rms_normalize(pass, pass.router_input.floats(), residual, weights.vector(DenseRole::router_norm));
  if (!pass.shape().has_latent_experts()) return;
  pass.backend().matmul(pass.latent_rows.floats(), pass.expert_row(), weights.matrix(DenseRole::expert_input),
                        routed_rows(pass, layer), pass.hidden(), pass.count());
}

RouterChoice choose_experts(PassState& pass, const LayerShape& layer, const DenseWeights& weights, std::span<uint8_t> hidden) {
  return route(pass, layer, weights, router_input(pass, layer), pass.router_answer,
               {hidden.data(), expert_input(pass, layer), hidden.size()});
}

RouterChoice choose_ahead(PassState& pass, const LayerShape& layer, const DenseWeights& weights) {
  // The branch memory is free until the layer's sum.
  float* const in = pass.branch.floats();
  float* state = pass.residual.floats();
  if (pass.shape().streams) {
    take_streams_ahead(pass, weights, in);
    state = in;
  }
  if (layer.router_norm) {
    rms_normalize(pass, in, state, weights.vector(DenseRole::router_norm));
  } else {
    const bool parallel = layer.parallel;
    normalize_hidden(pass, in, state, pass.count(), weights.vector(parallel ? DenseRole::mixer_norm : DenseRole::feed_forward_norm),
                     weights.vector(parallel ? DenseRole::mixer_norm_bias : DenseRole::feed_forward_norm_bias));
  }
  // A prediction needs no scores of the experts that were not chosen.
  return route(pass, layer, weights, in, RouterAnswer::choice, {});
}

void run_always(PassState& pass, const LayerShape& layer, const DenseWeights& weights) {
  if (!layer.always) return;
  const int n = pass.count();
  for (int first = 0; first < n; first += kExpertTileRows) {
    run_always_rows(pass, layer.always->glu, weights, first, std::min(kExpertTileRows, n - first));
  }
  float* const output = pass.always_output.floats();
  if (layer.always->gated) {
    pass.backend().matmul(pass.always_gates.floats(), 1, weights.matrix(DenseRole::always_weight), pass.normed.floats(),
                          pass.hidden(), n);
  }
  if (!layer.always_output_norm) return;
  if (layer.always->gated) {
    const Vectors gates{pass.always_gates.floats(), 1, 0, n, 1, 1};
    const CombineWork gated{
        .hidden = output, .always = output, .always_gates = gates.first, .n = n, .size = pass.hidden(), .add = false};
    pass.backend().combine(gated);
  }
  rms_normalize(pass, output, output, weights.vector(DenseRole::always_output_norm));
}

void add_feed_forward(PassState& pass, const LayerShape& layer, const DenseWeights& weights,
                      std::span<const float> expert_weights) {
  Backend& backend = pass.backend();
  const bool routed = !expert_weights.empty();
  float* const branch = pass.branch.floats();
  const float scale = pass.shape().residual_scale * layer.feed_forward_scale;
  CombineWork sum{.hidden = pass.residual.floats(), .n = pass.count(), .size = pass.hidden(), .scale = scale};
  if (routed) {
    sum.outputs = pass.expert_outputs.floats();
    sum.host_weights = expert_weights.data();
    sum.k = pass.shape().experts_per_token;
  }
  const bool latent = routed && pass.shape().has_latent_experts();
  const bool routed_apart = routed && (layer.routed_output_norm || latent);
  if (routed_apart) {
    CombineWork experts = sum;
    experts.hidden = latent ? pass.latent_rows.floats() : branch;
    experts.size = pass.expert_row();
    experts.scale = 1;
    experts.add = false;
    backend.combine(experts);
    if (latent) {
      backend.matmul(branch, pass.hidden(), weights.matrix(DenseRole::expert_output), pass.latent_rows.floats(), pass.expert_row(),
                     pass.count());
    }
    if (layer.routed_output_norm) rms_normalize(pass, branch, branch, weights.vector(DenseRole::routed_output_norm));
    sum.outputs = nullptr;
    sum.host_weights = nullptr;
    sum.k = 0;
  }
  if (layer.always) {
    sum.always = pass.always_output.floats();
    // A norm of the output of `always` comes after its gate.
    if (layer.always->gated && !layer.always_output_norm) sum.always_gates = pass.always_gates.floats();
  }
  if (routed_apart || layer.feed_forward_output_norm || pass.shape().streams) {
    sum.hidden = branch;
    sum.scale = 1;
    sum.add = routed_apart;
    if (sum.k > 0 || sum.always != nullptr) backend.combine(sum);
    if (layer.feed_forward_output_norm) rms_normalize(pass, branch, branch, weights.vector(DenseRole::feed_forward_output_norm));
    add_output(pass, branch, scale);
  } else {
    backend.combine(sum);
  }
  if (layer.layer_scale) {
    backend.scale(pass.residual.floats(), int64_t{pass.count()} * pass.hidden(), weights.number(DenseRole::layer_scale));
  }
}

}  // namespace odmoe
