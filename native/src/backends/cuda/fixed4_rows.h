// Making fixed4 matrices (weight_layout.h), on the host: which 16 exponents a tile gets is found by counting.
#pragma once
#include <cstdint>

#include "odmoe/formats.h"

namespace odmoe::cuda {

// The tiles that hold some rows, as a part of the matrix's storage.
struct Fixed4Tiles {
  int64_t offset;
  int64_t bytes;
  // The first tile begins with rows that were written before: what it holds must be at hand.
  bool begins_within_tile;
};

Fixed4Tiles fixed4_tiles(int64_t columns, int64_t first_row, int64_t rows);

// Rows [first_row, first_row + rows) from planes of row-major values (host memory; the rows' own bytes start at planes[i]),
// into `tiles`: host memory for what fixed4_tiles() says, 4-byte aligned; of the first tile it holds the rows before first_row,
// where there are such. False where the format cannot hold the rows: a value that is no BF16, or more exponents than a tile has
// codes and escapes for.
bool encode_fixed4_rows(uint8_t* tiles, int64_t columns, int64_t first_row, int64_t rows, Split split,
                        const uint8_t* const* planes);

}  // namespace odmoe::cuda
