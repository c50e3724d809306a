#include "pass_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "chosen_positions.h"
#include "mixers.h"
#include "odmoe/error.h"
#include "pools.h"

namespace odmoe {
namespace {

// Memory that only some layers need.
struct LayerNeeds {
  explicit LayerNeeds(const ModelShape& shape, int max_rows) {
    for (const LayerShape& layer : shape.layers) {
      mixer_floats = std::max(mixer_floats, mixer_scratch_floats(layer, shape, max_rows));
      if (const auto* latent = std::get_if<LatentMixer>(&layer.mixer)) {
        query_head = std::max(query_head, int64_t{latent->nope_size} + latent->rope_size);
      }
      if (layer.always) always_size = std::max(always_size, layer.always->glu.intermediate_size);
      routed_norm = routed_norm || layer.routed_norm;
      router_norm = router_norm || layer.router_norm;
      by_token = by_token || (layer.routed && layer.routed->by_token);
    }
    for (const RopeShape& rope : shape.ropes) pairs += static_cast<int64_t>(rope.frequencies.size());
  }

  int64_t mixer_floats = 0;
  int64_t query_head = 0;   // of latent attention
  int64_t always_size = 0;  // 0: no layer has `always`
  int64_t pairs = 0;
  bool routed_norm = false;
  bool router_norm = false;
  bool by_token = false;
};

}  // namespace

PassState::PassState(std::shared_ptr<Model> of, int rows, RouterAnswer answer)
    : model(std::move(of)), max_rows(rows), router_answer(answer) {
  const ModelShape& shape = model->shape();
  const LayerNeeds needs(shape, rows);
  const auto floats = [&](int64_t count, int64_t columns) {
    return DeviceMemory(model->device()->backend(), float_bytes(count * columns));
  };
  residual = floats(rows, shape.hidden_size);
  if (shape.streams) {
    const int64_t row = shape.streams->count * shape.hidden_size;
    streams = floats(rows, row);
    normed_streams = floats(std::min(rows, kExpertTileRows), row);
    stream_weights = floats(rows, shape.streams->values());
    weights_ahead = floats(rows, shape.streams->values());
  }
  normed = floats(rows, shape.hidden_size);
  branch = floats(rows, shape.hidden_size);
  mixer_scratch = floats(1, needs.mixer_floats);
  const ChosenNeeds chosen(shape, rows);
  if (chosen.chosen_positions > 0) chosen_positions = floats(1, chosen.chosen_positions);
  if (chosen.block_positions > 0) chosen_blocks = floats(1, chosen.block_positions);
  if (chosen.gathered_floats > 0) gathered_keys = floats(1, chosen.gathered_floats);
  const PoolNeeds pooled(shape, rows);
  if (pooled.undoes_rotations) undoing_sines = floats(rows, needs.pairs);
  pools = pool_kinds(shape);
  if (pooled.angle_floats > 0) pool_angles = floats(1, pooled.angle_floats);
  if (pooled.seen_floats > 0) seen_vectors = floats(1, pooled.seen_floats);
  if (pooled.chosen_entries > 0) chosen_entries = floats(1, pooled.chosen_entries);
  const int64_t index_floats = std::max(pooled.index_floats, chosen.index_floats);
  if (index_floats > 0) index_entries = floats(1, index_floats);
  if (needs.pairs > 0) rope_angles = floats(rows, 2 * needs.pairs);
  query_floats = needs.query_head;
  if (shape.query_scale) query_factors = floats(rows, query_floats);
  if (needs.routed_norm) routed_input = floats(rows, shape.hidden_size);
  if (needs.router_norm) router_input = floats(rows, shape.hidden_size);
  router_logits = floats(rows, shape.experts);
  if (needs.by_token) given_experts = floats(rows, shape.experts_per_token);
  expert_outputs = floats(int64_t{rows} * shape.experts_per_token, shape.expert_row_size());
  if (shape.has_latent_experts()) latent_rows = floats(rows, shape.expert_row_size());
  logits = floats(std::min(rows, kLogitRows), shape.vocab_size);
  if (shape.draft_head) draft_rows = floats(rows, 2 * shape.hidden_size);
  if (needs.always_size == 0) return;
  const int tile = std::min(rows, kExpertTileRows);
  always_gate_up = floats(tile, 2 * needs.always_size);
  always_activation = floats(tile, needs.always_size);
  always_output = floats(rows, shape.hidden_size);
  always_gates = floats(rows, 1);
}

RopeAngles PassState::angles(int rope) const {
  const std::vector<RopeShape>& ropes = shape().ropes;
  int64_t before = 0;
  for (int i = 0; i < rope; i++) before += static_cast<int64_t>(ropes[static_cast<size_t>(i)].frequencies.size());
  const auto pairs = static_cast<int>(ropes[static_cast<size_t>(rope)].frequencies.size());
  float* const cos = rope_angles.floats() + 2 * before * max_rows;
  float* const undoing = undoing_sines.empty() ? nullptr : undoing_sines.floats() + before * max_rows;
  return {cos, cos + int64_t{max_rows} * pairs, pairs, undoing};
}

const PoolRows& PassState::pool_rows(int rope, int positions) const {
  for (const PoolRows& kind : pools) {
    if (kind.rope == rope && kind.positions == positions) return kind;
  }
  throw Error(ErrorCode::internal, "the pass knows no pools of " + std::to_string(positions) + " positions");
}

}  // namespace odmoe
