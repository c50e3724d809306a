// Tables of rotary position embeddings with the same bits on every machine: double precision with + - * / only, then rounded to
// FP32.
#pragma once
#include <cstdint>

#include "odmoe/model_shape.h"

namespace odmoe {

// Largest position, and largest angle that is reduced exactly.
inline constexpr int32_t kMaxRopePosition = 1 << 20;

// Throws MODEL_UNSUPPORTED for a model with larger positions or angles.
void check_rotations(const ModelShape& shape);

// cos and sin of position * frequency, the product rounded to FP32 as the reference implementation does, times the rope's scale.
void rope_row(int32_t position, const RopeShape& rope, float* cos, float* sin);

}  // namespace odmoe
