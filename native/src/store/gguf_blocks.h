// Rows of GGUF's block formats.
#pragma once
#include <cstdint>

#include "odmoe/formats.h"

namespace odmoe {

// As block_row_to_floats and block_row_fault. Columns behind the last whole block are those of a block that is filled up.
void gguf_row_to_floats(Split split, const uint8_t* row, int64_t columns, float* out);
const char* gguf_row_fault(Split split, const uint8_t* row, int64_t columns);

}  // namespace odmoe
