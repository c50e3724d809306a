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
//  GGUF's formats: for each of the row's blocks (of 32 or 256 columns) the blocks of the tile's rows in turn, as they are shipped
//  fp8_row, fp8_tile, mxfp8: scales as below, filled up to 16 bytes; then codes as in fp8
//  nvfp4, grouped4: likewise; then 64 bytes for each block of columns: 16 bytes a row; byte i holds the code of column i in its low
//       half, of column 16 + i in its high half. grouped8: 32 bytes a row, in order
//       Scales of fp8_tile: for each 128 columns a float for the tile, 256 times its scale. mxfp8: for each block of columns a byte for
//       each row. nvfp4: for each block of columns two bytes a row. grouped: for each group a scale for each row; then, where there are
//       zeros, for each two groups (4 bits) or each group (8 bits) a byte for each row. fp8_row has 256 times the row's scale, and
//       nvfp4 the matrix's scale, as a float for each row behind the last tile; and grouped codes have the column order there
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

// Bytes that kernels may read behind the last byte of a sliced matrix, or of one in a block format.
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

// The sections of a tile of a block format with two planes.
struct BlockTileLayout {
  int64_t zeros = 0;  // offset of grouped codes' zeros, which lie behind the scales
  int64_t codes = 0;
  int64_t code_block_bytes = 0;  // of one row in a block of columns
  int64_t bytes = 0;
};

static constexpr int64_t grouped_zero_bytes(const GroupedCodes& codes, int64_t columns) {
  if (!codes.zeros) return 0;
  return kTileRows * (codes.bits == 8 ? codes.groups(columns) : (codes.groups(columns) + 1) / 2);
}

static constexpr int64_t block_scale_bytes(WeightFormat format, int64_t columns) {
  switch (kind_of(format)) {
    case WeightFormat::fp8_tile: return (columns + kFp8Block - 1) / kFp8Block * 4;
    case WeightFormat::mxfp8: return column_blocks(columns) * kTileRows;
    case WeightFormat::nvfp4_multiplied:
    case WeightFormat::nvfp4_divided: return column_blocks(columns) * kTileRows * 2;
    case WeightFormat::grouped4:
    case WeightFormat::grouped8: return kTileRows * grouped_codes(format).scale_bytes(columns);
    default: return 0;
  }
}

static constexpr bool has_four_bit_codes(WeightFormat format) {
  const WeightFormat kind = kind_of(format);
  return kind == WeightFormat::nvfp4_multiplied || kind == WeightFormat::nvfp4_divided || kind == WeightFormat::grouped4;
}

static constexpr BlockTileLayout block_tile_layout(WeightFormat format, int64_t columns) {
  BlockTileLayout layout;
  layout.zeros = block_scale_bytes(format, columns);
  layout.codes = layout.zeros + (is_grouped(format) ? grouped_zero_bytes(grouped_codes(format), columns) : 0);
  layout.codes = (layout.codes + 15) / 16 * 16;
  layout.code_block_bytes = has_four_bit_codes(format) ? kLanes / 2 : kLanes;
  layout.bytes = layout.codes + column_blocks(columns) * kTileRows * layout.code_block_bytes;
  return layout;
}

// Bytes behind the last tile of a block format: floats of rows, or the pieces of a column order.
static constexpr int64_t block_end_bytes(WeightFormat format, int64_t rows) {
  switch (kind_of(format)) {
    case WeightFormat::fp8_row:
    case WeightFormat::nvfp4_multiplied:
    case WeightFormat::nvfp4_divided: return row_tiles(rows) * kTileRows * 4;
    case WeightFormat::grouped4:
    case WeightFormat::grouped8: return rows * grouped_codes(format).order_bytes;
    default: return 0;
  }
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
    default: break;
  }
  const bool whole_rows = block_shape(static_cast<Split>(format)).columns != 0;
  return whole_rows ? kTileRows * block_row_bytes(format, columns) : block_tile_layout(format, columns).bytes;
}

static constexpr int64_t scales_offset(WeightFormat format, int64_t rows, int64_t columns) {
  return row_tiles(rows) * tile_bytes(format, columns);
}

static constexpr uint64_t storage_bytes(WeightFormat format, int64_t rows, int64_t columns) {
  int64_t scales = format == WeightFormat::int8 ? row_tiles(rows) * kTileRows * 4 : 0;
  if (slice_bits(format) != 0) {
    scales = row_tiles(rows) * kTileRows * column_blocks(columns) * kSliceScaleBytes + kSlicedReadBehind;
  }
  if (is_blocks(format)) scales = block_end_bytes(format, rows) + kSlicedReadBehind;
  return static_cast<uint64_t>(scales_offset(format, rows, columns) + scales);
}

static constexpr uint64_t lower_storage_bytes(WeightFormat format, int64_t rows, int64_t columns) {
  return slice_bits(format) == 0 ? 0 : static_cast<uint64_t>(scales_offset(format, rows, columns));
}

}  // namespace odmoe::cpu
