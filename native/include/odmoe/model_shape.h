// A model as data, as in shared/model/model-shape.ts, which explains each member. Sizes are in elements.
#pragma once
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "odmoe/operators.h"

namespace odmoe {

struct RotaryShape {
  int rope = 0;
  RotaryPairing pairing = RotaryPairing::halves;
  int offset = 0;
};

enum class QueryKeyNorm : uint8_t { none, head, all };

struct BlockIndexerShape {
  int head_dim = 0;
  int block_size = 0;
  int blocks = 0;
  int local_blocks = 0;
  float norm_epsilon = 0;
  std::optional<RotaryShape> rotary;

  int64_t positions() const { return int64_t{blocks} * block_size; }
};

struct AttentionMixer {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int value_dim = 0;  // 0: head_dim
  float value_scale = 1;
  bool bias = false;
  bool output_bias = false;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  bool norm_after_rotation = false;
  bool value_norm = false;
  float norm_epsilon = 0;
  float clip = 0;
  bool keys_are_values = false;
  bool output_gate = false;
  Gate output_gate_function = Gate::sigmoid;
  bool gate_per_head = false;  // one gate for all dimensions of a head
  bool sinks = false;
  int window = 0;
  float score_scale = 0;
  std::optional<RotaryShape> rotary;
  std::optional<BlockIndexerShape> block_indexer;

  int64_t query_size() const { return static_cast<int64_t>(heads) * head_dim; }
  int64_t key_size() const { return static_cast<int64_t>(kv_heads) * head_dim; }
  int value_head() const { return value_dim == 0 ? head_dim : value_dim; }
  int64_t value_size() const { return static_cast<int64_t>(kv_heads) * value_head(); }
  int64_t output_size() const { return static_cast<int64_t>(heads) * value_head(); }
  int64_t gate_size() const { return output_gate ? (gate_per_head ? heads : output_size()) : 0; }
};

struct IndexerShape {
  int heads = 0;
  int head_dim = 0;
  int positions = 0;
  float norm_epsilon = 0;
  std::optional<RotaryShape> rotary;
  int pool_positions = 0;  // positions of a pool; 0: positions are chosen by themselves

  // Vectors of a position in the cache: the key, and with pools the gates.
  int vectors() const { return pool_positions > 0 ? 2 : 1; }
  // Positions or pools that are chosen.
  int choices() const { return pool_positions > 0 ? positions / pool_positions : positions; }
};

struct LatentMixer {
  int heads = 0;
  int query_rank = 0;
  int latent_size = 0;
  int nope_size = 0;
  int rope_size = 0;
  int value_size = 0;
  float norm_epsilon = 0;
  float score_scale = 0;
  std::optional<RotaryShape> rotary;
  std::optional<IndexerShape> indexer;
  bool shares_indexer = false;
  bool sinks = false;
  bool output_gate = false;

  int key_size() const { return latent_size + rope_size; }
  int64_t output_size() const { return int64_t{heads} * value_size; }
  int64_t gate_size() const { return output_gate ? output_size() : 0; }
};

struct DeltaMixer {
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int taps = 0;
  float norm_epsilon = 0;
  bool tiled_value_heads = false;  // value head h has key head h mod key_heads, not h / (value_heads / key_heads)
  bool decay_is_rate = false;      // the decay_log tensor holds the rates, not their logarithms
  bool decay_by_channel = false;   // a decay for each channel of a head's key
  float decay_floor = 0;           // 0: none
  int low_rank = 0;                // 0: decays and gates are not low-rank
  Gate gate = Gate::silu;
  bool separate_convolutions = false;

  int64_t key_size() const { return static_cast<int64_t>(key_heads) * key_dim; }
  int64_t value_size() const { return static_cast<int64_t>(value_heads) * value_dim; }
  int64_t channels() const { return 2 * key_size() + value_size(); }
  int64_t decays() const { return int64_t{value_heads} * (decay_by_channel ? key_dim : 1); }
  // Enter the recurrence at a position: the channels, beta of each value head, and the decays.
  int64_t row_floats() const { return channels() + value_heads + decays(); }
};

struct ConvolutionMixer {
  int taps = 0;
};

struct StateSpaceMixer {
  int heads = 0;
  int groups = 0;
  int head_dim = 0;
  int state_size = 0;
  int taps = 0;
  bool convolution_bias = false;
  int norm_groups = 1;
  float norm_epsilon = 0;

  int64_t inner_size() const { return static_cast<int64_t>(heads) * head_dim; }
  int64_t group_size() const { return static_cast<int64_t>(groups) * state_size; }
  int64_t channels() const { return inner_size() + 2 * group_size(); }
  // Enter the recurrence at a position: the channels, and a step of each head.
  int64_t row_floats() const { return channels() + heads; }
};

struct PoolIndexerShape {
  int heads = 0;
  int head_dim = 0;
  int entries = 0;
  RotaryShape rotary;
};

struct PoolsShape {
  int positions = 0;
  bool overlaps = false;
  std::optional<PoolIndexerShape> indexer;

  int parts() const { return overlaps ? 2 : 1; }
};

struct PooledMixer {
  int heads = 0;
  int head_dim = 0;
  int query_rank = 0;
  int output_groups = 0;
  int output_rank = 0;
  int window = 0;
  float norm_epsilon = 0;
  float score_scale = 0;
  RotaryShape rotary;
  std::optional<PoolsShape> pools;

  int64_t query_size() const { return static_cast<int64_t>(heads) * head_dim; }
  // Vectors of a pool's values and gates beside the key of a position, and those of the indexer.
  int pool_vectors() const { return pools ? 2 * pools->parts() : 0; }
  int index_vectors() const { return pools && pools->indexer ? 2 * pools->parts() : 0; }
  int index_dim() const { return pools && pools->indexer ? pools->indexer->head_dim : 0; }
};

using MixerShape = std::variant<AttentionMixer, LatentMixer, DeltaMixer, ConvolutionMixer, StateSpaceMixer, PooledMixer>;

inline bool is_recurrent(const MixerShape& mixer) {
  return !std::holds_alternative<AttentionMixer>(mixer) && !std::holds_alternative<LatentMixer>(mixer) &&
         !std::holds_alternative<PooledMixer>(mixer);
}

struct AlwaysShape {
  GluShape glu;
  bool gated = false;
};

struct LayerShape {
  MixerShape mixer;
  bool input_norms = true;
  bool parallel = false;
  float feed_forward_scale = 1;
  bool mixer_output_norm = false;
  std::optional<AlwaysShape> always;
  std::optional<RouterShape> routed;
  std::optional<float> expert_limit;  // in place of the limit of ModelShape's expert
  bool routed_norm = false;
  bool router_norm = false;
  bool always_output_norm = false;
  bool routed_output_norm = false;
  bool feed_forward_output_norm = false;
  bool layer_scale = false;

  bool has_feed_forward() const { return always.has_value() || routed.has_value(); }
};

struct RopeShape {
  std::vector<float> frequencies;
  float scale = 1;
};

enum class NormKind : uint8_t { rms, layer, layer_without_bias };

struct QueryScale {
  float beta = 0;
  int length = 1;
};

struct StreamsShape {
  int count = 0;
  float epsilon = 0;
  bool mixes = true;
  int rounds = 0;             // of mixed streams
  float magnitude = 2;        // of streams that are not mixed
  bool ends_in_mean = false;  // there are no weights for the sum behind the last layer

  int values() const { return mixes ? (2 + count) * count : 2 * count; }
  int scales() const { return mixes ? 3 : 2; }
};

struct ModelShape {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int max_positions = 0;
  NormKind norm = NormKind::rms;
  float norm_epsilon = 0;
  float embedding_scale = 1;
  float residual_scale = 1;
  bool lm_head_bias = false;
  float logit_divisor = 1;
  float logit_cap = 0;
  std::vector<RopeShape> ropes;
  std::vector<LayerShape> layers;
  int expert_layers = 0;
  int experts = 0;
  int experts_per_token = 0;
  GluShape expert;
  int64_t expert_hidden_size = 0;  // of the rows that experts take and give; 0: hidden_size
  // Rows begin from tokens and hidden states of another model (shared/model/model-shape.ts, draftHead).
  bool draft_head = false;
  std::optional<QueryScale> query_scale;
  std::optional<StreamsShape> streams;

  bool has_latent_experts() const { return expert_hidden_size > 0; }
  int64_t expert_row_size() const { return has_latent_experts() ? expert_hidden_size : hidden_size; }
};

// The GLU of the layer's experts.
inline GluShape expert_glu(const ModelShape& shape, const LayerShape& layer) {
  GluShape glu = shape.expert;
  glu.limit = layer.expert_limit.value_or(glu.limit);
  return glu;
}

}  // namespace odmoe
