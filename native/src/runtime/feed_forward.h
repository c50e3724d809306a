// The feed-forward half of a layer: the part that every row passes (`always`), the router, and the sum of both.
#pragma once
#include <cstdint>
#include <span>

#include "pass_state.h"

namespace odmoe {

// Norms what experts, router and `always` take.
void prepare_feed_forward(PassState& pass, const LayerShape& layer, const DenseWeights& weights);
// What the layer's experts take: rows x hidden.
const float* expert_input(const PassState& pass, const LayerShape& layer);
// The experts chosen; what they take goes to `hidden`, unless that is empty.
RouterChoice choose_experts(PassState& pass, const LayerShape& layer, const DenseWeights& weights, std::span<uint8_t> hidden);
// What the router of a later layer would choose for the residual as it is. Between this layer's mixer and its sum.
RouterChoice choose_ahead(PassState& pass, const LayerShape& layer, const DenseWeights& weights);
// Runs `always`, where the layer has one, on what prepare_feed_forward left.
void run_always(PassState& pass, const LayerShape& layer, const DenseWeights& weights);
// Adds what the layer's parts gave to the residual: `always` and, unless weights are empty, the experts' outputs.
void add_feed_forward(PassState& pass, const LayerShape& layer, const DenseWeights& weights, std::span<const float> expert_weights);

}  // namespace odmoe
