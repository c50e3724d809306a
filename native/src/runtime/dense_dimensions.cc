#include "dense_dimensions.h"

#include <initializer_list>

namespace odmoe {
namespace {

using Roles = std::vector<DenseRole>;

// Added one by one: GCC 12 warns of an overflow in insert().
void add(Roles& roles, std::initializer_list<DenseRole> more) {
  for (const DenseRole role : more) roles.push_back(role);
}

struct MixerRoles {
  Roles& roles;

  void operator()(const AttentionMixer& mixer) const {
    add(roles, {DenseRole::query, DenseRole::key});
    if (!mixer.keys_are_values) add(roles, {DenseRole::value});
    if (mixer.bias) add(roles, {DenseRole::query_bias, DenseRole::key_bias});
    if (mixer.bias && !mixer.keys_are_values) add(roles, {DenseRole::value_bias});
    if (mixer.query_key_norm != QueryKeyNorm::none) add(roles, {DenseRole::query_norm, DenseRole::key_norm});
    if (mixer.output_gate) add(roles, {DenseRole::output_gate});
    if (mixer.sinks) add(roles, {DenseRole::sinks});
    if (mixer.output_bias) add(roles, {DenseRole::mixer_output_bias});
    if (!mixer.block_indexer) return;
    add(roles, {DenseRole::index_query, DenseRole::index_query_norm, DenseRole::index_key, DenseRole::index_key_norm});
  }
  void operator()(const LatentMixer& mixer) const {
    if (mixer.query_rank > 0) add(roles, {DenseRole::query_low, DenseRole::query_low_norm});
    add(roles, {DenseRole::query, DenseRole::latent, DenseRole::latent_norm, DenseRole::key_expansion, DenseRole::value_expansion});
    if (mixer.sinks) add(roles, {DenseRole::sinks});
    if (mixer.output_gate) add(roles, {DenseRole::output_gate});
    if (!mixer.indexer) return;
    add(roles, {DenseRole::index_query, DenseRole::index_key, DenseRole::index_key_norm, DenseRole::index_key_norm_bias,
                DenseRole::index_weights});
    if (mixer.indexer->pool_positions > 0) add(roles, {DenseRole::index_pool_gate, DenseRole::index_pool_gate_bias});
  }
  void operator()(const DeltaMixer& mixer) const {
    add(roles, {DenseRole::delta_query, DenseRole::delta_key, DenseRole::delta_value, DenseRole::delta_gate, DenseRole::delta_beta,
                DenseRole::delta_decay, DenseRole::decay_log, DenseRole::decay_bias, DenseRole::delta_norm});
    if (mixer.low_rank > 0) add(roles, {DenseRole::delta_gate_low, DenseRole::delta_decay_low});
    if (mixer.separate_convolutions) {
      add(roles, {DenseRole::query_convolution, DenseRole::key_convolution, DenseRole::value_convolution});
    } else {
      add(roles, {DenseRole::convolution});
    }
  }
  void operator()(const StateSpaceMixer& mixer) const {
    add(roles, {DenseRole::state_space_input, DenseRole::state_space_gate, DenseRole::convolution, DenseRole::decay_log,
                DenseRole::decay_bias, DenseRole::state_space_skip, DenseRole::state_space_norm});
    if (mixer.convolution_bias) add(roles, {DenseRole::convolution_bias});
  }
  void operator()(const PooledMixer& mixer) const {
    add(roles, {DenseRole::query_low, DenseRole::query_low_norm, DenseRole::query, DenseRole::key, DenseRole::key_norm,
                DenseRole::sinks, DenseRole::output_low});
    if (!mixer.pools) return;
    add(roles, {DenseRole::pool_value, DenseRole::pool_gate, DenseRole::pool_gate_bias, DenseRole::pool_norm});
    if (!mixer.pools->indexer) return;
    add(roles, {DenseRole::index_query, DenseRole::index_weights, DenseRole::index_pool_value, DenseRole::index_pool_gate,
                DenseRole::index_pool_gate_bias, DenseRole::index_pool_norm});
  }
  void operator()(const ConvolutionMixer&) const { add(roles, {DenseRole::convolution_input, DenseRole::convolution}); }
};

void add_routed_roles(Roles& roles, const LayerShape& layer) {
  if (!layer.routed) return;
  add(roles, {DenseRole::router});
  if (layer.routed_norm) add(roles, {DenseRole::routed_norm});
  if (layer.router_norm) add(roles, {DenseRole::router_norm});
  if (layer.routed->bias) add(roles, {DenseRole::router_bias});
  if (layer.routed->choice_bias) add(roles, {DenseRole::choice_bias});
  if (layer.routed->expert_scale) add(roles, {DenseRole::expert_scale});
  if (layer.routed->by_token) add(roles, {DenseRole::token_experts});
  if (layer.routed_output_norm) add(roles, {DenseRole::routed_output_norm});
}

// Dimensions by role; roles with the size of a hidden state (norms and biases of the residual stream) are not listed.
struct MixerDimensions {
  DenseRole role;
  int64_t hidden;

  DenseDimensions operator()(const AttentionMixer& mixer) const {
    const int64_t queries = mixer.query_size();
    const int64_t keys = mixer.key_size();
    const bool per_head = mixer.query_key_norm == QueryKeyNorm::head;
    switch (role) {
      case DenseRole::query: return {queries, hidden};
      case DenseRole::output_gate: return {mixer.gate_size(), hidden};
      case DenseRole::key: return {keys, hidden};
      case DenseRole::value: return {mixer.value_size(), hidden};
      case DenseRole::query_bias: return {1, queries};
      case DenseRole::key_bias: return {1, keys};
      case DenseRole::value_bias: return {1, mixer.value_size()};
      case DenseRole::query_norm: return {1, per_head ? mixer.head_dim : queries};
      case DenseRole::key_norm: return {1, per_head ? mixer.head_dim : keys};
      case DenseRole::sinks: return {1, mixer.heads};
      case DenseRole::index_query: return {int64_t{mixer.kv_heads} * mixer.block_indexer->head_dim, hidden};
      case DenseRole::index_key: return {mixer.block_indexer->head_dim, hidden};
      case DenseRole::index_query_norm:
      case DenseRole::index_key_norm: return {1, mixer.block_indexer->head_dim};
      case DenseRole::mixer_output: return {hidden, mixer.output_size()};
      default: return {1, hidden};
    }
  }
  DenseDimensions operator()(const LatentMixer& mixer) const {
    const int64_t heads = mixer.heads;
    switch (role) {
      case DenseRole::query_low: return {mixer.query_rank, hidden};
      case DenseRole::query_low_norm: return {1, mixer.query_rank};
      case DenseRole::query:
        return {heads * (mixer.nope_size + mixer.rope_size), mixer.query_rank == 0 ? hidden : mixer.query_rank};
      case DenseRole::latent: return {mixer.key_size(), hidden};
      case DenseRole::latent_norm: return {1, mixer.latent_size};
      case DenseRole::key_expansion: return {heads * mixer.latent_size, mixer.nope_size};
      case DenseRole::value_expansion: return {heads * mixer.value_size, mixer.latent_size};
      case DenseRole::sinks: return {1, heads};
      case DenseRole::output_gate: return {mixer.gate_size(), hidden};
      case DenseRole::index_query: return {int64_t{mixer.indexer->heads} * mixer.indexer->head_dim, mixer.query_rank};
      case DenseRole::index_key: return {mixer.indexer->head_dim, hidden};
      case DenseRole::index_key_norm:
      case DenseRole::index_key_norm_bias: return {1, mixer.indexer->head_dim};
      case DenseRole::index_weights: return {mixer.indexer->heads, hidden};
      case DenseRole::index_pool_gate: return {mixer.indexer->head_dim, hidden};
      case DenseRole::index_pool_gate_bias: return {mixer.indexer->pool_positions, mixer.indexer->head_dim};
      case DenseRole::mixer_output: return {hidden, heads * mixer.value_size};
      default: return {1, hidden};
    }
  }
  DenseDimensions operator()(const DeltaMixer& mixer) const {
    const int64_t low = mixer.low_rank > 0 ? mixer.low_rank : hidden;
    switch (role) {
      case DenseRole::delta_query:
      case DenseRole::delta_key: return {mixer.key_size(), hidden};
      case DenseRole::delta_value: return {mixer.value_size(), hidden};
      case DenseRole::delta_gate_low:
      case DenseRole::delta_decay_low: return {low, hidden};
      case DenseRole::delta_gate: return {mixer.value_size(), low};
      case DenseRole::delta_beta: return {mixer.value_heads, hidden};
      case DenseRole::delta_decay: return {mixer.decays(), low};
      case DenseRole::convolution: return {mixer.taps, mixer.channels()};
      case DenseRole::query_convolution:
      case DenseRole::key_convolution: return {mixer.taps, mixer.key_size()};
      case DenseRole::value_convolution: return {mixer.taps, mixer.value_size()};
      case DenseRole::decay_log: return {1, mixer.value_heads};
      case DenseRole::decay_bias: return {1, mixer.decays()};
      case DenseRole::delta_norm: return {1, mixer.value_dim};
      case DenseRole::mixer_output: return {hidden, mixer.value_size()};
      default: return {1, hidden};
    }
  }
  DenseDimensions operator()(const StateSpaceMixer& mixer) const {
    switch (role) {
      case DenseRole::state_space_input: return {mixer.row_floats(), hidden};
      case DenseRole::state_space_gate: return {mixer.inner_size(), hidden};
      case DenseRole::convolution: return {mixer.taps, mixer.channels()};
      case DenseRole::convolution_bias: return {1, mixer.channels()};
      case DenseRole::decay_log:
      case DenseRole::decay_bias:
      case DenseRole::state_space_skip: return {1, mixer.heads};
      case DenseRole::state_space_norm: return {1, mixer.inner_size()};
      case DenseRole::mixer_output: return {hidden, mixer.inner_size()};
      default: return {1, hidden};
    }
  }
  DenseDimensions operator()(const PooledMixer& mixer) const {
    const int64_t parts = mixer.pools ? mixer.pools->parts() : 0;
    const int64_t positions = mixer.pools ? mixer.pools->positions : 0;
    const int64_t index_dim = mixer.index_dim();
    const int64_t index_heads = index_dim > 0 ? mixer.pools->indexer->heads : 0;
    switch (role) {
      case DenseRole::query_low: return {mixer.query_rank, hidden};
      case DenseRole::query_low_norm: return {1, mixer.query_rank};
      case DenseRole::query: return {mixer.query_size(), mixer.query_rank};
      case DenseRole::key: return {mixer.head_dim, hidden};
      case DenseRole::key_norm:
      case DenseRole::pool_norm: return {1, mixer.head_dim};
      case DenseRole::sinks: return {1, mixer.heads};
      case DenseRole::output_low:
        return {int64_t{mixer.output_groups} * mixer.output_rank, mixer.query_size() / mixer.output_groups};
      case DenseRole::pool_value:
      case DenseRole::pool_gate: return {parts * mixer.head_dim, hidden};
      case DenseRole::pool_gate_bias: return {positions, parts * mixer.head_dim};
      case DenseRole::index_query: return {index_heads * index_dim, mixer.query_rank};
      case DenseRole::index_weights: return {index_heads, hidden};
      case DenseRole::index_pool_value:
      case DenseRole::index_pool_gate: return {parts * index_dim, hidden};
      case DenseRole::index_pool_gate_bias: return {positions, parts * index_dim};
      case DenseRole::index_pool_norm: return {1, index_dim};
      case DenseRole::mixer_output: return {hidden, int64_t{mixer.output_groups} * mixer.output_rank};
      default: return {1, hidden};
    }
  }
  DenseDimensions operator()(const ConvolutionMixer& mixer) const {
    switch (role) {
      case DenseRole::convolution_input: return {3 * hidden, hidden};
      case DenseRole::convolution: return {mixer.taps, hidden};
      case DenseRole::mixer_output: return {hidden, hidden};
      default: return {1, hidden};
    }
  }
};

DenseDimensions layer_dimensions(DenseRole role, const LayerShape& layer, const ModelShape& shape) {
  const int64_t hidden = shape.hidden_size;
  const int64_t always = layer.always ? layer.always->glu.intermediate_size : 0;
  switch (role) {
    case DenseRole::always_gate:
    case DenseRole::always_up: return {layer.always ? layer.always->glu.gate_rows() : 0, hidden};
    case DenseRole::always_down: return {hidden, always};
    case DenseRole::always_weight: return {1, hidden};
    case DenseRole::expert_input: return {shape.expert_row_size(), hidden};
    case DenseRole::expert_output: return {hidden, shape.expert_row_size()};
    case DenseRole::router: return {shape.experts, hidden};
    case DenseRole::router_bias:
    case DenseRole::choice_bias:
    case DenseRole::expert_scale: return {1, shape.experts};
    case DenseRole::token_experts: return {shape.vocab_size, shape.experts_per_token};
    case DenseRole::layer_scale: return {1, 1};
    case DenseRole::mixer_stream_map:
    case DenseRole::feed_forward_stream_map: return {shape.streams->values(), shape.streams->count * hidden};
    case DenseRole::mixer_stream_scale:
    case DenseRole::feed_forward_stream_scale: return {1, shape.streams->scales()};
    case DenseRole::mixer_stream_base:
    case DenseRole::feed_forward_stream_base: return {1, shape.streams->values()};
    default: return std::visit(MixerDimensions{role, hidden}, layer.mixer);
  }
}

}  // namespace

std::vector<DenseRole> model_roles(const ModelShape& shape) {
  Roles roles;
  add(roles, {DenseRole::embedding, DenseRole::final_norm, DenseRole::lm_head});
  if (shape.norm == NormKind::layer) add(roles, {DenseRole::final_norm_bias});
  if (shape.lm_head_bias) add(roles, {DenseRole::lm_head_bias});
  if (shape.draft_head) add(roles, {DenseRole::token_norm, DenseRole::state_norm, DenseRole::draft_input});
  if (shape.streams && !shape.streams->ends_in_mean) {
    add(roles, {DenseRole::final_stream_map, DenseRole::final_stream_scale, DenseRole::final_stream_base});
  }
  return roles;
}

std::vector<DenseRole> layer_roles(const LayerShape& layer, const ModelShape& shape) {
  Roles roles;
  add(roles, {DenseRole::mixer_output});
  const bool biases = shape.norm == NormKind::layer;
  if (layer.input_norms) add(roles, {DenseRole::mixer_norm});
  if (layer.input_norms && biases) add(roles, {DenseRole::mixer_norm_bias});
  const bool own_norm = layer.input_norms && !layer.parallel && layer.has_feed_forward();
  if (own_norm) add(roles, {DenseRole::feed_forward_norm});
  if (own_norm && biases) add(roles, {DenseRole::feed_forward_norm_bias});
  if (shape.streams) add(roles, {DenseRole::mixer_stream_map, DenseRole::mixer_stream_scale, DenseRole::mixer_stream_base});
  if (shape.streams && layer.has_feed_forward()) {
    add(roles, {DenseRole::feed_forward_stream_map, DenseRole::feed_forward_stream_scale, DenseRole::feed_forward_stream_base});
  }
  std::visit(MixerRoles{roles}, layer.mixer);
  if (layer.mixer_output_norm) add(roles, {DenseRole::mixer_output_norm});
  add_routed_roles(roles, layer);
  if (layer.routed && shape.has_latent_experts()) add(roles, {DenseRole::expert_input, DenseRole::expert_output});
  if (layer.always) {
    add(roles, {DenseRole::always_gate, DenseRole::always_up, DenseRole::always_down});
    if (layer.always->gated) add(roles, {DenseRole::always_weight});
    if (layer.always_output_norm) add(roles, {DenseRole::always_output_norm});
  }
  if (layer.feed_forward_output_norm) add(roles, {DenseRole::feed_forward_output_norm});
  if (layer.layer_scale) add(roles, {DenseRole::layer_scale});
  return roles;
}

DenseDimensions dense_dimensions(DenseRole role, int layer, const ModelShape& shape) {
  if (!dense_role_facts(role).of_model) return layer_dimensions(role, shape.layers[static_cast<size_t>(layer)], shape);
  if (role == DenseRole::embedding || role == DenseRole::lm_head) return {shape.vocab_size, shape.hidden_size};
  switch (role) {
    case DenseRole::draft_input: return {shape.hidden_size, 2 * shape.hidden_size};
    case DenseRole::final_stream_map: return {shape.streams->count, shape.streams->count * shape.hidden_size};
    case DenseRole::final_stream_scale: return {1, 1};
    case DenseRole::final_stream_base: return {1, shape.streams->count};
    default: return {1, role == DenseRole::lm_head_bias ? shape.vocab_size : shape.hidden_size};
  }
}

}  // namespace odmoe
