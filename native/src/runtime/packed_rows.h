// Rows of BF16 matrices as fixed4 ones, piece by piece, on the processor.
#pragma once
#include <cstdint>

#include "odmoe/expert.h"

namespace odmoe {

// Rows of one piece: whole tiles, of about 16,384 values together.
int64_t packed_piece_rows(int64_t columns);

// The values of a piece of any of the expert's matrices, as FP32.
uint64_t pack_scratch_bytes(const ExpertShape& shape);

// Writes the piece of the fixed4 matrix `to` that begins at a row from the BF16 matrix `from`; pieces come in rising order. False: fixed4
// cannot hold these rows, and `to` holds nothing. values: pack_scratch_bytes(). From any thread: it uses no others.
bool pack_piece(Backend& backend, Matrix& to, const Matrix& from, int64_t first_row, float* values);

}  // namespace odmoe
