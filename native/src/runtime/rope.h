// Rotary position embedding tables, the same bits on every machine: double precision by + - * / only, then rounded to FP32.
#pragma once
#include <cstdint>
#include <vector>

namespace odmoe {

// Largest position whose angle is reduced exactly.
inline constexpr int32_t kMaxRopePosition = 1 << 20;

// theta^(-2 i / head_dim) for i < head_dim / 2.
std::vector<float> rope_inverse_frequencies(double theta, int head_dim);

// cos and sin of position * inverse_frequency[i], the product rounded to FP32 as the reference implementation does.
void rope_row(int32_t position, const std::vector<float>& inverse_frequencies, float* cos, float* sin);

}  // namespace odmoe
