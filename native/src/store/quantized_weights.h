// Checks that codes and scales of quantized weights are valid.
#pragma once
#include <cstdint>

#include "odmoe/formats.h"

namespace odmoe {

// The fault of a quantized row, as the first part of an error message (the place follows); null where there is none. An MXFP4
// weight must be a BF16; an FP8 weight must be a number, and its scale neither negative nor so large that a weight can be infinite.
// Null for every other split.
const char* quantized_fault(Split split, const uint8_t* const* planes, int64_t columns);

// The same for rows that follow one another in each plane.
const char* quantized_fault(Split split, const uint8_t* const* planes, int64_t rows, int64_t columns);

}  // namespace odmoe
