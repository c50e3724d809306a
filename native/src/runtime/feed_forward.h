// The feed-forward half of a layer: the part that every row passes (`always`), the router, and the sum of both.
#pragma once
#include <cstdint>
#include <span>

#include "pass_state.h"

namespace odmoe {

// Computes the normed inputs of experts, router and `always`.
void prepare_feed_forward(PassState& pass, const LayerShape& layer, const DenseWeights& weights);
// The input of the layer's experts: rows x hidden.
const float* expert_input(const PassState& pass, const LayerShape& layer);
// Returns the chosen experts; copies their input to `hidden`, unless that is empty.
RouterChoice choose_experts(PassState& pass, const LayerShape& layer, const DenseWeights& weights, std::span<uint8_t> hidden);
// The experts that the router of a later layer would choose for the present residual. To be called between this layer's mixer and
// its sum.
RouterChoice choose_ahead(PassState& pass, const LayerShape& layer, const DenseWeights& weights);
// Runs `always`, where the layer has it, on the input of prepare_feed_forward.
void run_always(PassState& pass, const LayerShape& layer, const DenseWeights& weights);
// Adds the outputs of the layer's parts to the residual: `always` and, unless weights are empty, the experts' outputs.
void add_feed_forward(PassState& pass, const LayerShape& layer, const DenseWeights& weights, std::span<const float> expert_weights);

}  // namespace odmoe
