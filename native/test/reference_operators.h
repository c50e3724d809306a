// Complete operators of the one arithmetic, in the same simple form as reference_arithmetic.h.
#pragma once
#include <cstdint>
#include <vector>

#include "odmoe/backend.h"

namespace odmoe::test {

// in / root * weight * scale; weight null: none.
std::vector<float> reference_norm(const std::vector<float>& in, const float* weight, float divisor, float epsilon, float scale);
// bias: null for none.
std::vector<float> reference_layer_norm(const std::vector<float>& in, const std::vector<float>& weight, const float* bias,
                                        float epsilon);
// Rotates in place the first 2 x pairs values from `head` on.
void reference_rotate(float* head, const float* cos, const float* sin, int pairs, RotaryPairing pairing);

struct Choice {
  std::vector<int32_t> experts;
  std::vector<float> weights;
  std::vector<float> scores;  // of all experts; empty: a sparsemixer has none
};
// One row; choice_bias and expert_scale empty: none. given: k experts by rank; empty: the scores choose them.
Choice reference_router(const std::vector<float>& logits, int k, const RouterShape& shape, const std::vector<float>& choice_bias,
                        const std::vector<float>& expert_scale, const std::vector<int32_t>& given = {});

// Element j of row i of CombineWork's result; host and device memory are the same.
float reference_combined(const CombineWork& work, int i, int j);

// Like Backend::convolve, Backend::delta_rule and Backend::state_space for one work; host and device memory are the same.
void reference_convolve(const ConvolutionWork& work);
void reference_delta_rule(const DeltaWork& work);
void reference_channel_decay(const DecayWork& work);
void reference_state_space(const StateSpaceWork& work);

// Like Backend's operators of the same names; host and device memory are the same.
void reference_stream_weights(const StreamWeightsWork& work);
void reference_sum_streams(const StreamSumWork& work);
void reference_mix_streams(const StreamMixWork& work);
// The entry of the pool that ends at `position`, of PoolWork with host memory. rows: positions x vectors x size.
std::vector<float> reference_pool(const PoolWork& work, const float* rows, int position);

}  // namespace odmoe::test
