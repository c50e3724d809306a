// The one arithmetic of arithmetic.h in the simplest form, one value at a time. Every kernel must equal it to the bit. It shares no
// code with the backends.
#pragma once
#include <cstdint>
#include <vector>

#include "odmoe/backend.h"

namespace odmoe::test {

float reference_fold(const std::vector<float>& partial);
// The two vectors must have the same size.
float reference_dot(const std::vector<float>& x, const std::vector<float>& w);
float reference_sum(const std::vector<float>& x);
float reference_exp(float x);
float reference_log(float x);
float reference_sigmoid(float x);
float reference_silu(float x);
float reference_tanh(float x);
float reference_softplus(float x);
float reference_limited(float x, float limit);
// The inputs already have their biases.
float reference_glu(float gate, float up, const GluShape& shape);

float reference_of_half(uint16_t half);
uint16_t reference_to_half(float x);
uint16_t reference_to_bf16(float x);
float reference_of_bf16(uint16_t bits);

// A row of weights in a format: the values of the dot, and the factor of the finished dot.
struct StoredRow {
  std::vector<float> values;  // with the values of padding behind them
  float scale = 1.0f;
};
StoredRow reference_store(WeightFormat format, const std::vector<float>& row);

// Attention of one query over keys and values of the positions [begin, end): keys[position][dimension]. sink: null where there is none.
std::vector<float> reference_attention(const std::vector<float>& query, const std::vector<std::vector<float>>& keys,
                                       const std::vector<std::vector<float>>& values, int begin, int end, float score_scale,
                                       const float* sink);

}  // namespace odmoe::test
