// The layouts of matrices in the CPU backend. Rows form tiles of kTileRows, columns form blocks of kLanes; incomplete tiles and
// blocks are padded (columns with zeros). A tile is one stream of memory: for each block of columns, the tile's rows in turn.
//  bf16: 16 words a row; word i holds column i in its low half, column 16 + i in its high half
//  fp16, fp32: 32 values a row; int8: 32 bytes a row
//  nf4: per 64 columns, a float scale for each row of the tile, then twice (for 32 columns each) 16 bytes a row; byte i holds the
//       code of column i in its low half, of column 16 + i in its high half
//  fixed4: BF16 with its exponent as a code of 4 bits, see below
//  mxfp4: for each block of columns a byte for each row of the tile, its scale (E8M0), filled up to a cache line; then 64 bytes for each
//       block of columns: 16 bytes a row. They are the 32 codes in the bf16 layout's order: byte j has word j in its low half and word
//       8 + j in its high half where j < 8, else word 8 + j and 16 + j
//  fp8: for each 128 columns a float for each row of the tile, 256 times its scale, filled up to a cache line; then 128 bytes for each
//       block of columns: 32 bytes a row. Word i (16 bits) holds column i in its low byte, column 16 + i in its high byte. E4M3
//       bits read as FP16 give a value 256 times smaller, and processors convert FP16
//  sliced84, sliced63, sliced42: storage: for each block of columns the upper slice's codes of each row, in the order of odmoe/slices.h;
//       behind the last tile an FP16 scale for each of these, and then a byte for the zero of each. lower: the lower slice's codes
// int8 has one float scale per row behind the last tile. Except in fixed4 no two rows share a byte, so that several threads may
// write.
//
// A fixed4 tile begins with a prefix: two tables of 16 bytes, with the bits of each code's exponent e in the high byte of a BF16
// (e >> 1) and in the low byte ((e & 1) << 7); the number of escapes; the escapes, 4 bytes each, in rising order. An escape is a
// weight whose exponent is not among the tile's 16: block << 16 | place << 8 | exponent. `place` is the number of its 16-bit word
// in the bf16 layout's block (its code means nothing). Then 192 bytes for each block of columns: 64 of codes, 128 of sign (bit 7)
// and mantissa. Byte i of the codes holds the code of byte i of the sign-mantissa bytes' first half in its low half, of their
// second half in its high half. Byte 16 q + 8 r + j of half h belongs to row 2 h + r, word 8 q + j (of the bf16 layout's row):
// one interleave of the lower and one of the upper eight bytes of each 16 join high and low bytes to words in the bf16 layout's
// order.
// The functions are static: the linker must not use one instruction set's copy in the object of another.
#pragma once
#include <cstdint>

#include "odmoe/arithmetic.h"
#include "odmoe/backend.h"
#include "odmoe/slices.h"

namespace odmoe::cpu {

inline constexpr int kTileRows = 4;
inline constexpr int64_t kNf4PairBytes = kTileRows * 4 + 2 * kTileRows * 16;

inline constexpr int64_t kMxfp4BlockBytes = kTileRows * kLanes / 2;
inline constexpr int64_t kFp8BlockBytes = kTileRows * kLanes;
inline constexpr float kFp8ScaleFactor = 256.0f;

inline constexpr int64_t kFixed4Codes = 16;
inline constexpr int64_t kFixed4CountOffset = 2 * kFixed4Codes;
inline constexpr int64_t kFixed4EscapesOffset = kFixed4CountOffset + 4;
inline constexpr int64_t kFixed4CodeBytes = kTileRows * kLanes / 2;
inline constexpr int64_t kFixed4BlockBytes = kFixed4CodeBytes + kTileRows * kLanes;

// Bytes that kernels may read behind the last zero of a sliced matrix.
inline constexpr int64_t kSlicedReadBehind = 32;

static constexpr int64_t column_blocks(int64_t columns) { return (columns + kLanes - 1) / kLanes; }
static constexpr int64_t row_tiles(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

// Room for an escape in every 256 weights, rounded up to a cache line.
static constexpr int64_t fixed4_prefix_bytes(int64_t columns) {
  return (kFixed4EscapesOffset + columns * kTileRows / 256 * 4 + 63) / 64 * 64;
}
static constexpr int64_t fixed4_capacity(int64_t columns) { return (fixed4_prefix_bytes(columns) - kFixed4EscapesOffset) / 4; }

// Bytes of the scales at the start of mxfp4 and fp8 tiles.
static constexpr int64_t mxfp4_scale_bytes(int64_t columns) { return (column_blocks(columns) * kTileRows + 63) / 64 * 64; }
static constexpr int64_t fp8_scale_bytes(int64_t columns) {
  return ((columns + kFp8Block - 1) / kFp8Block * kTileRows * 4 + 63) / 64 * 64;
}

static constexpr int64_t tile_bytes(WeightFormat format, int64_t columns) {
  const int64_t blocks = column_blocks(columns);
  switch (format) {
    case WeightFormat::bf16:
    case WeightFormat::fp16: return blocks * kTileRows * kLanes * 2;
    case WeightFormat::fp32: return blocks * kTileRows * kLanes * 4;
    case WeightFormat::int8: return blocks * kTileRows * kLanes;
    case WeightFormat::nf4: return (blocks + 1) / 2 * kNf4PairBytes;
    case WeightFormat::fixed4: return fixed4_prefix_bytes(columns) + blocks * kFixed4BlockBytes;
    case WeightFormat::mxfp4: return mxfp4_scale_bytes(columns) + blocks * kMxfp4BlockBytes;
    case WeightFormat::fp8: return fp8_scale_bytes(columns) + blocks * kFp8BlockBytes;
    case WeightFormat::sliced84:
    case WeightFormat::sliced63:
    case WeightFormat::sliced42: return blocks * kTileRows * slice_code_bytes(slice_bits(format));
    default: return kTileRows * block_row_bytes(format, columns);
  }
}

static constexpr int64_t scales_offset(WeightFormat format, int64_t rows, int64_t columns) {
  return row_tiles(rows) * tile_bytes(format, columns);
}

static constexpr uint64_t storage_bytes(WeightFormat format, int64_t rows, int64_t columns) {
  int64_t scales = format == WeightFormat::int8 ? row_tiles(rows) * kTileRows * 4 : 0;
  if (slice_bits(format) != 0) {
    scales = row_tiles(rows) * kTileRows * column_blocks(columns) * kSliceScaleBytes + kSlicedReadBehind;
  }
  return static_cast<uint64_t>(scales_offset(format, rows, columns) + scales);
}

static constexpr uint64_t lower_storage_bytes(WeightFormat format, int64_t rows, int64_t columns) {
  return slice_bits(format) == 0 ? 0 : static_cast<uint64_t>(scales_offset(format, rows, columns));
}

}  // namespace odmoe::cpu
