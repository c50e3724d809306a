// The values of block formats (odmoe/formats.h), one row at a time: the scalar reference for every kernel.
#pragma once
#include <cstdint>

#include "odmoe/formats.h"

namespace odmoe {

// The weights of a row of `columns` values, each the exact value rounded once to FP32, in the order in which the columns are stored:
// a column order of grouped codes is not undone.
void block_row_to_floats(Split split, const uint8_t* const* planes, int64_t columns, float* out);

// The fault of a row, as the first part of an error message (the place follows); null where there is none. Every weight must be a
// finite number.
const char* block_row_fault(Split split, const uint8_t* const* planes, int64_t columns);

}  // namespace odmoe
