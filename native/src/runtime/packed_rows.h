// Converts rows of BF16 matrices to fixed4, piece by piece, on the processor.
#pragma once
#include <cstdint>

#include "odmoe/expert.h"

namespace odmoe {

// Rows of one piece: whole tiles with about 16,384 values together.
int64_t packed_piece_rows(int64_t columns);

// Bytes of the FP32 values of a piece, for any of the expert's matrices.
uint64_t pack_scratch_bytes(const ExpertShape& shape);

// Writes a piece of the fixed4 matrix `to`, from row `first_row` on, from the BF16 matrix `from`; pieces come in rising order.
// False: fixed4 cannot hold these rows, and `to` holds nothing. values: pack_scratch_bytes(). May be called from any thread; it
// uses no other threads.
bool pack_piece(Backend& backend, Matrix& to, const Matrix& from, int64_t first_row, float* values);

}  // namespace odmoe
