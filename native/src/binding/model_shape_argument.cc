#include "model_shape_argument.h"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "enumeration.h"

namespace odmoe {
namespace {

// Reads the members of one object as types of the runtime.
class Members {
 public:
  explicit Members(const Napi::Object& object) : object_(object) {}

  int64_t size(const char* name) const { return to_integer(object_.Get(name), name, 1); }
  int count(const char* name) const { return to_int(object_.Get(name), name); }
  float real(const char* name) const {
    const auto value = static_cast<float>(to_number(object_.Get(name), name));
    if (!std::isfinite(value)) odmoe::refuse(name, object_.Get(name), "a number that FP32 holds");
    return value;
  }
  bool flag(const char* name) const {
    const Napi::Value value = object_.Get(name);
    if (!value.IsBoolean()) refuse(name);
    return value.As<Napi::Boolean>().Value();
  }
  bool is_null(const char* name) const { return object_.Get(name).IsNull(); }
  Napi::Object object(const char* name) const {
    const Napi::Value value = object_.Get(name);
    if (!value.IsObject()) refuse(name);
    return value.As<Napi::Object>();
  }
  Napi::Array array(const char* name) const {
    const Napi::Value value = object_.Get(name);
    if (!value.IsArray()) refuse(name);
    return value.As<Napi::Array>();
  }
  bool has(const char* name) const { return !object_.Get(name).IsUndefined(); }
  template <typename Enumeration, size_t Count>
  Enumeration one_of(const char* name, const std::array<std::string_view, Count>& names) const {
    const Napi::Value value = object_.Get(name);
    if (!value.IsString()) refuse(name);
    return to_enumeration<Enumeration>(value, name, names);
  }

 private:
  [[noreturn]] static void refuse(const char* name) {
    throw Error(ErrorCode::internal, std::string("the model's description has no fitting '") + name + "'");
  }

  Napi::Object object_;
};

RotaryShape to_rotary_shape(const Napi::Object& object) {
  static constexpr std::array<std::string_view, 2> kPairings = {"halves", "neighbours"};
  const Members members(object);
  return {members.count("rope"), members.one_of<RotaryPairing>("pairing", kPairings), members.count("offset")};
}

BlockIndexerShape to_block_indexer_shape(const Napi::Object& object) {
  const Members members(object);
  BlockIndexerShape indexer;
  indexer.head_dim = members.count("headDim");
  indexer.block_size = members.count("blockSize");
  indexer.blocks = members.count("blocks");
  indexer.local_blocks = members.count("localBlocks");
  indexer.norm_epsilon = members.real("normEpsilon");
  if (!members.is_null("rotary")) indexer.rotary = to_rotary_shape(members.object("rotary"));
  return indexer;
}

AttentionMixer to_attention_mixer(const Members& members) {
  static constexpr std::array<std::string_view, 3> kNorms = {"none", "head", "all"};
  AttentionMixer mixer;
  mixer.heads = members.count("heads");
  mixer.kv_heads = members.count("keyValueHeads");
  mixer.head_dim = members.count("headDim");
  if (members.has("valueDim")) mixer.value_dim = members.count("valueDim");
  if (members.has("valueScale")) mixer.value_scale = members.real("valueScale");
  mixer.bias = members.flag("bias");
  mixer.output_bias = members.flag("outputBias");
  mixer.query_key_norm = members.one_of<QueryKeyNorm>("queryKeyNorm", kNorms);
  mixer.norm_after_rotation = members.flag("normAfterRotation");
  mixer.value_norm = members.flag("valueNorm");
  mixer.norm_epsilon = members.real("normEpsilon");
  mixer.clip = members.real("clip");
  mixer.keys_are_values = members.flag("keysAreValues");
  mixer.output_gate = members.flag("outputGate");
  static constexpr std::array<std::string_view, 3> kGates = {"sigmoid", "silu", "softplus"};
  if (members.has("outputGateFunction")) mixer.output_gate_function = members.one_of<Gate>("outputGateFunction", kGates);
  enum class Width : uint8_t { element, head };
  static constexpr std::array<std::string_view, 2> kWidths = {"element", "head"};
  mixer.gate_per_head = members.has("outputGateWidth") && members.one_of<Width>("outputGateWidth", kWidths) == Width::head;
  mixer.sinks = members.flag("sinks");
  mixer.window = members.count("window");
  mixer.score_scale = members.real("scoreScale");
  if (!members.is_null("rotary")) mixer.rotary = to_rotary_shape(members.object("rotary"));
  if (members.has("blockIndexer")) mixer.block_indexer = to_block_indexer_shape(members.object("blockIndexer"));
  return mixer;
}

IndexerShape to_indexer_shape(const Napi::Object& object) {
  const Members members(object);
  IndexerShape indexer;
  indexer.heads = members.count("heads");
  indexer.head_dim = members.count("headDim");
  indexer.positions = members.count("positions");
  indexer.norm_epsilon = members.real("normEpsilon");
  if (!members.is_null("rotary")) indexer.rotary = to_rotary_shape(members.object("rotary"));
  if (members.has("poolPositions")) indexer.pool_positions = members.count("poolPositions");
  return indexer;
}

LatentMixer to_latent_mixer(const Members& members) {
  LatentMixer mixer;
  mixer.heads = members.count("heads");
  mixer.query_rank = members.count("queryRank");
  mixer.latent_size = members.count("latentSize");
  mixer.nope_size = members.count("nopeSize");
  mixer.rope_size = members.count("ropeSize");
  mixer.value_size = members.count("valueSize");
  mixer.norm_epsilon = members.real("normEpsilon");
  mixer.score_scale = members.real("scoreScale");
  if (!members.is_null("rotary")) mixer.rotary = to_rotary_shape(members.object("rotary"));
  if (members.has("indexer")) mixer.indexer = to_indexer_shape(members.object("indexer"));
  mixer.shares_indexer = members.has("sharesIndexer") && members.flag("sharesIndexer");
  mixer.sinks = members.has("sinks") && members.flag("sinks");
  mixer.output_gate = members.has("outputGate") && members.flag("outputGate");
  return mixer;
}

DeltaMixer to_delta_mixer(const Members& members) {
  DeltaMixer mixer;
  mixer.key_heads = members.count("keyHeads");
  mixer.value_heads = members.count("valueHeads");
  mixer.key_dim = members.count("keyDim");
  mixer.value_dim = members.count("valueDim");
  mixer.taps = members.count("taps");
  mixer.norm_epsilon = members.real("normEpsilon");
  enum class Order : uint8_t { grouped, tiled };
  static constexpr std::array<std::string_view, 2> kOrders = {"grouped", "tiled"};
  mixer.tiled_value_heads = members.has("valueHeadOrder") && members.one_of<Order>("valueHeadOrder", kOrders) == Order::tiled;
  enum class Decay : uint8_t { logarithm, rate };
  static constexpr std::array<std::string_view, 2> kDecays = {"logarithm", "rate"};
  mixer.decay_is_rate = members.has("decayForm") && members.one_of<Decay>("decayForm", kDecays) == Decay::rate;
  enum class Width : uint8_t { head, channel };
  static constexpr std::array<std::string_view, 2> kWidths = {"head", "channel"};
  mixer.decay_by_channel = members.has("decayWidth") && members.one_of<Width>("decayWidth", kWidths) == Width::channel;
  if (members.has("decayFloor")) mixer.decay_floor = members.real("decayFloor");
  if (members.has("lowRank")) mixer.low_rank = members.count("lowRank");
  static constexpr std::array<std::string_view, 2> kGates = {"sigmoid", "silu"};
  if (members.has("gateFunction")) mixer.gate = members.one_of<Gate>("gateFunction", kGates);
  mixer.separate_convolutions = members.has("separateConvolutions") && members.flag("separateConvolutions");
  return mixer;
}

StateSpaceMixer to_state_space_mixer(const Members& members) {
  StateSpaceMixer mixer;
  mixer.heads = members.count("heads");
  mixer.groups = members.count("groups");
  mixer.head_dim = members.count("headDim");
  mixer.state_size = members.count("stateSize");
  mixer.taps = members.count("taps");
  mixer.convolution_bias = members.flag("convolutionBias");
  mixer.norm_groups = members.count("normGroups");
  mixer.norm_epsilon = members.real("normEpsilon");
  return mixer;
}

PoolsShape to_pools_shape(const Napi::Object& object) {
  const Members members(object);
  PoolsShape pools;
  pools.positions = members.count("positions");
  pools.overlaps = members.flag("overlaps");
  if (!members.has("indexer")) return pools;
  const Members indexer(members.object("indexer"));
  pools.indexer = PoolIndexerShape{indexer.count("heads"), indexer.count("headDim"), indexer.count("entries"),
                                   to_rotary_shape(indexer.object("rotary"))};
  return pools;
}

PooledMixer to_pooled_mixer(const Members& members) {
  PooledMixer mixer;
  mixer.heads = members.count("heads");
  mixer.head_dim = members.count("headDim");
  mixer.query_rank = members.count("queryRank");
  mixer.output_groups = members.count("outputGroups");
  mixer.output_rank = members.count("outputRank");
  mixer.window = members.count("window");
  mixer.norm_epsilon = members.real("normEpsilon");
  mixer.score_scale = members.real("scoreScale");
  mixer.rotary = to_rotary_shape(members.object("rotary"));
  if (members.has("pools")) mixer.pools = to_pools_shape(members.object("pools"));
  return mixer;
}

MixerShape to_mixer_shape(const Napi::Object& object) {
  enum class Kind : uint8_t { attention, latent, delta, convolution, state_space, pooled };
  static constexpr std::array<std::string_view, 6> kKinds = {"attention",   "latent",      "delta",
                                                             "convolution", "state-space", "pooled"};
  const Members members(object);
  switch (members.one_of<Kind>("kind", kKinds)) {
    case Kind::attention: return to_attention_mixer(members);
    case Kind::latent: return to_latent_mixer(members);
    case Kind::delta: return to_delta_mixer(members);
    case Kind::state_space: return to_state_space_mixer(members);
    case Kind::pooled: return to_pooled_mixer(members);
    case Kind::convolution: break;
  }
  return ConvolutionMixer{members.count("taps")};
}

RouterShape to_router_shape(const Napi::Object& object) {
  static constexpr std::array<std::string_view, 4> kScores = {"softmax", "sigmoid", "sparsemixer", "sqrt-softplus"};
  static constexpr std::array<std::string_view, 2> kGroupScores = {"best", "best-two"};
  const Members members(object);
  RouterShape router;
  router.score = members.one_of<RouterScore>("score", kScores);
  router.bias = members.flag("bias");
  router.choice_bias = members.flag("choiceBias");
  router.groups = members.count("groups");
  router.groups_kept = members.count("groupsKept");
  router.group_score = members.one_of<GroupScore>("groupScore", kGroupScores);
  router.normalize = members.flag("normalize");
  router.sum_epsilon = members.real("sumEpsilon");
  router.sum_floor = members.real("sumFloor");
  router.scale = members.real("scale");
  router.expert_scale = members.flag("expertScale");
  router.jitter = members.real("jitter");
  if (members.has("logitCap")) router.logit_cap = members.real("logitCap");
  router.by_token = members.has("byToken") && members.flag("byToken");
  return router;
}

AlwaysShape to_always_shape(const Napi::Object& object) {
  const Members members(object);
  return {to_glu_shape(members.object("glu")), members.flag("gated")};
}

LayerShape to_layer_shape(const Napi::Object& object) {
  const Members members(object);
  LayerShape layer;
  layer.mixer = to_mixer_shape(members.object("mixer"));
  layer.input_norms = !members.has("inputNorms") || members.flag("inputNorms");
  layer.parallel = members.has("parallel") && members.flag("parallel");
  if (members.has("feedForwardScale")) layer.feed_forward_scale = members.real("feedForwardScale");
  layer.mixer_output_norm = members.flag("mixerOutputNorm");
  if (!members.is_null("always")) layer.always = to_always_shape(members.object("always"));
  if (!members.is_null("routed")) layer.routed = to_router_shape(members.object("routed"));
  if (members.has("expertLimit")) layer.expert_limit = members.real("expertLimit");
  layer.routed_norm = members.flag("routedNorm");
  layer.router_norm = members.flag("routerNorm");
  layer.always_output_norm = members.flag("alwaysOutputNorm");
  layer.routed_output_norm = members.flag("routedOutputNorm");
  layer.feed_forward_output_norm = members.flag("feedForwardOutputNorm");
  layer.layer_scale = members.flag("layerScale");
  return layer;
}

RopeShape to_rope_shape(const Napi::Object& object) {
  const Members members(object);
  const Napi::Array frequencies = members.array("frequencies");
  RopeShape rope;
  for (uint32_t i = 0; i < frequencies.Length(); i++) {
    rope.frequencies.push_back(static_cast<float>(to_number(frequencies.Get(i), "frequencies")));
  }
  rope.scale = members.real("scale");
  return rope;
}

StreamsShape to_streams_shape(const Napi::Object& object) {
  const Members members(object);
  StreamsShape streams;
  streams.count = members.count("count");
  streams.epsilon = members.real("epsilon");
  enum class Kind : uint8_t { mixed, added };
  static constexpr std::array<std::string_view, 2> kKinds = {"mixed", "added"};
  streams.mixes = members.one_of<Kind>("kind", kKinds) == Kind::mixed;
  if (streams.mixes) {
    streams.rounds = members.count("rounds");
  } else {
    streams.magnitude = members.real("magnitude");
  }
  streams.ends_in_mean = members.has("ending");
  return streams;
}

}  // namespace

GluShape to_glu_shape(const Napi::Object& object) {
  static constexpr std::array<std::string_view, 3> kActivations = {"sigmoid", "tanh", "relu-squared"};
  const Members members(object);
  GluShape glu;
  glu.intermediate_size = members.size("intermediateSize");
  glu.activation = members.one_of<Activation>("activation", kActivations);
  glu.alpha = members.real("alpha");
  glu.limit = members.real("limit");
  glu.up_offset = members.real("upOffset");
  glu.bias = members.flag("bias");
  enum class Limited : uint8_t { inputs, activation };
  static constexpr std::array<std::string_view, 2> kLimited = {"inputs", "activation"};
  glu.limits_activation = members.has("limitOn") && members.one_of<Limited>("limitOn", kLimited) == Limited::activation;
  return glu;
}

ModelShape to_model_shape(const Napi::Object& object) {
  static constexpr std::array<std::string_view, 3> kNorms = {"rms", "layer", "layer-without-bias"};
  const Members members(object);
  ModelShape shape;
  shape.vocab_size = members.size("vocabSize");
  shape.hidden_size = members.size("hiddenSize");
  shape.max_positions = members.count("maxPositions");
  shape.norm = members.one_of<NormKind>("norm", kNorms);
  shape.norm_epsilon = members.real("normEpsilon");
  shape.embedding_scale = members.real("embeddingScale");
  shape.residual_scale = members.real("residualScale");
  shape.lm_head_bias = members.flag("lmHeadBias");
  shape.logit_divisor = members.real("logitDivisor");
  shape.logit_cap = members.real("logitCap");
  const Napi::Array ropes = members.array("ropes");
  for (uint32_t i = 0; i < ropes.Length(); i++) shape.ropes.push_back(to_rope_shape(to_object(ropes.Get(i), "ropes")));
  const Napi::Array layers = members.array("layers");
  for (uint32_t i = 0; i < layers.Length(); i++) {
    shape.layers.push_back(to_layer_shape(to_object(layers.Get(i), "layers")));
  }
  shape.expert_layers = members.count("expertLayers");
  shape.experts = members.count("experts");
  shape.experts_per_token = members.count("expertsPerToken");
  shape.expert = to_glu_shape(members.object("expert"));
  if (members.has("expertHiddenSize")) shape.expert_hidden_size = members.size("expertHiddenSize");
  shape.draft_head = members.has("draftHead");
  if (members.has("queryScale")) {
    const Members scale(members.object("queryScale"));
    shape.query_scale = QueryScale{scale.real("beta"), scale.count("length")};
  }
  if (members.has("streams")) shape.streams = to_streams_shape(members.object("streams"));
  return shape;
}

}  // namespace odmoe
