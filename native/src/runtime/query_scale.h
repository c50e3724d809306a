// Factors by which a model multiplies queries, the more the later their positions are. They have the same bits on every machine.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "odmoe/model_shape.h"

namespace odmoe {

// For each position 1 + beta * log(1 + position / length), the division rounded down (transformers' modeling_mistral4.py).
std::vector<float> query_factors(const QueryScale& scale, std::span<const int32_t> positions);

}  // namespace odmoe
