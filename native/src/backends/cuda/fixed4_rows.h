// Makes fixed4 matrices (weight_layout.h), on the host: it counts exponents to choose the 16 of each tile.
#pragma once
#include <cstdint>

#include "odmoe/formats.h"

namespace odmoe::cuda {

// The tiles that hold given rows, as a part of the matrix's storage.
struct Fixed4Tiles {
  int64_t offset;
  int64_t bytes;
  // The first tile begins with rows that were written before: its contents must be supplied.
  bool begins_within_tile;
};

Fixed4Tiles fixed4_tiles(int64_t columns, int64_t first_row, int64_t rows);

// Rows [first_row, first_row + rows) from planes of row-major values (host memory; the rows' own bytes start at planes[i]),
// into `tiles`: host memory of the size that fixed4_tiles() gives, 4-byte aligned. If the first tile has rows before first_row,
// `tiles` already holds them. False if the format cannot hold the rows: a value is not a BF16, or a tile has too many exponents for
// its codes and escapes.
bool encode_fixed4_rows(uint8_t* tiles, int64_t columns, int64_t first_row, int64_t rows, Split split,
                        const uint8_t* const* planes);

}  // namespace odmoe::cuda
