// How the CPU backend keeps matrices. Rows stand in tiles of kTileRows, columns in blocks of kLanes; rows and columns that do not
// fill one are padded (columns with zeros). A tile is one stream of memory: for each block of columns, the tile's rows in turn.
//  bf16: 16 words a row; word i holds column i in its low half, column 16 + i in its high half
//  fp16, fp32: 32 values a row; int8: 32 bytes a row
//  nf4: per 64 columns, a float scale for each row of the tile, then twice (for 32 columns each) 16 bytes a row; byte i holds the
//       code of column i in its low half, of column 16 + i in its high half
// int8 has one float scale per row behind the last tile.
// The functions are static: the linker must not share one instruction set's copy with another's object.
#pragma once
#include <cstdint>

#include "odmoe/arithmetic.h"
#include "odmoe/backend.h"

namespace odmoe::cpu {

inline constexpr int kTileRows = 4;
inline constexpr int64_t kNf4PairBytes = kTileRows * 4 + 2 * kTileRows * 16;

static constexpr int64_t column_blocks(int64_t columns) { return (columns + kLanes - 1) / kLanes; }
static constexpr int64_t row_tiles(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

static constexpr int64_t tile_bytes(WeightFormat format, int64_t columns) {
  const int64_t blocks = column_blocks(columns);
  switch (format) {
    case WeightFormat::bf16:
    case WeightFormat::fp16:
      return blocks * kTileRows * kLanes * 2;
    case WeightFormat::fp32:
      return blocks * kTileRows * kLanes * 4;
    case WeightFormat::int8:
      return blocks * kTileRows * kLanes;
    case WeightFormat::nf4:
      return (blocks + 1) / 2 * kNf4PairBytes;
  }
  return 0;
}

static constexpr int64_t scales_offset(WeightFormat format, int64_t rows, int64_t columns) {
  return row_tiles(rows) * tile_bytes(format, columns);
}

static constexpr uint64_t storage_bytes(WeightFormat format, int64_t rows, int64_t columns) {
  const int64_t scales = format == WeightFormat::int8 ? row_tiles(rows) * kTileRows * 4 : 0;
  return static_cast<uint64_t>(scales_offset(format, rows, columns) + scales);
}

}  // namespace odmoe::cpu
