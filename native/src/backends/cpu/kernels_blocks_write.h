// Writes rows of block formats to their places (weight_layout.h), and reads them back.
#pragma once
#include "simd.h"
#include "odmoe/block_values.h"
#include "odmoe/quantized_values.h"

namespace odmoe::cpu {
namespace {

// `count` codes of 8 bits to blocks of columns, as words of columns i and 16 + i, or in order; what is behind the last one is 0.
ODMOE_INLINE void write_byte_codes(const uint8_t* from, int64_t count, bool as_words, uint8_t* to, int64_t step) {
  for (; count > 0; count -= kLanes, from += kLanes, to += step) {
    uint8_t codes[kLanes] = {};
    const int64_t whole = count < kLanes ? count : kLanes;
    for (int64_t i = 0; i < whole; ++i) codes[i] = from[i];
    for (int i = 0; i < kLanes; ++i) to[i] = as_words ? codes[i / 2 + i % 2 * 16] : codes[i];
  }
}

// `count` codes of 4 bits, two a byte, to blocks of columns whose bytes hold columns i and 16 + i.
ODMOE_INLINE void write_half_byte_codes(const uint8_t* from, int64_t count, uint8_t* to, int64_t step) {
  for (; count > 0; count -= kLanes, from += kLanes / 2, to += step) {
    uint8_t bytes[kLanes / 2] = {};
    const int64_t whole = count < kLanes ? count : kLanes;
    for (int64_t i = 0; i < (whole + 1) / 2; ++i) bytes[i] = from[i];
    if (whole % 2 != 0) bytes[whole / 2] &= 15;
    for (int i = 0; i < kLanes / 2; ++i) {
      const int low = bytes[i / 2] >> (i % 2 * 4) & 15;
      const int high = bytes[8 + i / 2] >> (i % 2 * 4) & 15;
      to[i] = static_cast<uint8_t>(low | high << 4);
    }
  }
}

// One float of a row behind the last tile, or in a tile.
ODMOE_INLINE void write_scale(const uint8_t* from, float factor, uint8_t* to) {
  float scale;
  __builtin_memcpy(&scale, from, 4);
  scale *= factor;
  __builtin_memcpy(to, &scale, 4);
}

void write_grouped_scales(const GroupedCodes& codes, const BlockTileLayout& layout, const uint8_t* from, int64_t columns,
                          uint8_t* tile, int row) {
  const int64_t groups = codes.groups(columns);
  const int size = codes.scales == ScaleType::fp32 ? 4 : 2;
  for (int64_t i = 0; i < groups * size; ++i) tile[(i / size * kTileRows + row) * size + i % size] = from[i];
  const uint8_t* const zeros = from + groups * size;
  const int64_t zero_bytes = codes.zero_bytes(columns);
  for (int64_t i = 0; i < zero_bytes; ++i) tile[layout.zeros + i * kTileRows + row] = zeros[i];
}

// The scales of a row of a format with two planes. `end` is behind the last tile.
void write_block_scales(const Matrix& matrix, const BlockTileLayout& layout, const uint8_t* from, uint8_t* tile, uint8_t* end,
                        int64_t number) {
  const int64_t columns = matrix.columns;
  const int row = static_cast<int>(number % kTileRows);
  switch (kind_of(matrix.format)) {
    case WeightFormat::fp8_row: return write_scale(from, kFp8ScaleFactor, end + number * 4);
    case WeightFormat::fp8_tile:
      // The rows of a tile have equal scales; only one of them writes, because several threads may write rows.
      for (int64_t i = 0; row == 0 && i < (columns + kFp8Block - 1) / kFp8Block; ++i) {
        write_scale(from + 4 * i, kFp8ScaleFactor, tile + 4 * i);
      }
      return;
    case WeightFormat::mxfp8:
      for (int64_t i = 0; i < column_blocks(columns); ++i) tile[i * kTileRows + row] = from[i];
      return;
    case WeightFormat::nvfp4_multiplied:
    case WeightFormat::nvfp4_divided: {
      const int64_t scales = (columns + kNvfp4Block - 1) / kNvfp4Block;
      for (int64_t i = 0; i < 2 * column_blocks(columns); ++i) {
        tile[(i / 2 * kTileRows + row) * 2 + i % 2] = i < scales ? from[i] : 0;
      }
      return write_scale(from + scales, 1.0f, end + number * 4);
    }
    default: break;
  }
  const GroupedCodes codes = grouped_codes(matrix.format);
  write_grouped_scales(codes, layout, from, columns, tile, row);
  const uint8_t* const order = from + codes.scale_bytes(columns) + codes.zero_bytes(columns);
  for (int i = 0; i < codes.order_bytes; ++i) end[number * codes.order_bytes + i] = order[i];
}

// Rows of whole GGUF blocks.
void write_gguf_row(const Matrix& matrix, const uint8_t* from, uint8_t* tile, int row) {
  const BlockShape shape = block_shape(static_cast<Split>(matrix.format));
  const int64_t blocks = (matrix.columns + shape.columns - 1) / shape.columns;
  for (int64_t i = 0; i < blocks; ++i, from += shape.bytes) {
    __builtin_memcpy(tile + (i * kTileRows + row) * shape.bytes, from, static_cast<size_t>(shape.bytes));
  }
}

void write_same_blocks(Matrix& matrix, int64_t first_row, int64_t rows, const uint8_t* const* planes) {
  const auto split = static_cast<Split>(matrix.format);
  const bool gguf = block_shape(split).columns != 0;
  const BlockTileLayout layout = block_tile_layout(matrix.format, matrix.columns);
  const int64_t bytes = tile_bytes(matrix.format, matrix.columns);
  const int64_t code_row = block_plane_row_bytes(split, 0, matrix.columns);
  const int64_t scale_row = gguf ? 0 : block_plane_row_bytes(split, 1, matrix.columns);
  uint8_t* const storage = static_cast<uint8_t*>(matrix.storage.data);
  uint8_t* const end = storage + scales_offset(matrix.format, matrix.rows, matrix.columns);
  const int64_t step = kTileRows * layout.code_block_bytes;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t number = first_row + i;
    const int row = static_cast<int>(number % kTileRows);
    uint8_t* const tile = storage + number / kTileRows * bytes;
    const uint8_t* const codes = planes[0] + i * code_row;
    if (gguf) {
      write_gguf_row(matrix, codes, tile, row);
      continue;
    }
    uint8_t* const to = tile + layout.codes + row * layout.code_block_bytes;
    if (has_four_bit_codes(matrix.format)) {
      write_half_byte_codes(codes, matrix.columns, to, step);
    } else {
      write_byte_codes(codes, matrix.columns, kind_of(matrix.format) != WeightFormat::grouped8, to, step);
    }
    write_block_scales(matrix, layout, planes[1] + i * scale_row, tile, end, number);
  }
}

// A row of a format that is_embedding_format as its planes, in pieces of columns that its scales allow; they are the shipped bytes.
void read_e4m3_row(float* out, const Matrix& matrix, int64_t number) {
  const auto* const storage = static_cast<const uint8_t*>(matrix.storage.data);
  const BlockTileLayout layout = block_tile_layout(matrix.format, matrix.columns);
  const uint8_t* const tile = storage + number / kTileRows * layout.bytes;
  const uint8_t* const end = storage + scales_offset(matrix.format, matrix.rows, matrix.columns);
  const int64_t row = number % kTileRows;
  for (int64_t column = 0; column < matrix.columns; ++column) {
    const int64_t block = column / kLanes;
    const int64_t place = column % 16 * 2 + column % kLanes / 16;
    float value = kE4m3Values.values[tile[layout.codes + (block * kTileRows + row) * kLanes + place]];
    if (matrix.format == WeightFormat::mxfp8) {
      out[column] = value * kE8m0Values.values[tile[block * kTileRows + row]];
      continue;
    }
    float scale;
    const uint8_t* const at = matrix.format == WeightFormat::fp8_row ? end + number * 4 : tile + column / kFp8Block * 4;
    __builtin_memcpy(&scale, at, 4);
    // The stored scale is 256 times larger than it was, and the division is exact.
    out[column] = value * (scale / kFp8ScaleFactor);
  }
}

void read_nvfp4_row(float* out, const Matrix& matrix, int64_t number) {
  const auto* const storage = static_cast<const uint8_t*>(matrix.storage.data);
  const BlockTileLayout layout = block_tile_layout(matrix.format, matrix.columns);
  const uint8_t* const tile = storage + number / kTileRows * layout.bytes;
  const uint8_t* const end = storage + scales_offset(matrix.format, matrix.rows, matrix.columns);
  float global;
  __builtin_memcpy(&global, end + number * 4, 4);
  for (int64_t column = 0; column < matrix.columns; ++column) {
    const int64_t at = column / kLanes * kTileRows + number % kTileRows;
    const int code = tile[layout.codes + at * (kLanes / 2) + column % 16] >> (column % kLanes / 16 * 4) & 15;
    const float value = kMxfp4Values[code] * kE4m3Values.values[tile[at * 2 + column % kLanes / 16]];
    out[column] = matrix.format == WeightFormat::nvfp4_divided ? value / global : value * global;
  }
}

void read_block_row(float* out, const Matrix& matrix, int64_t number) {
  const auto split = static_cast<Split>(matrix.format);
  const BlockShape shape = block_shape(split);
  if (shape.columns == 0) {
    const bool nvfp4 = has_four_bit_codes(matrix.format);
    return nvfp4 ? read_nvfp4_row(out, matrix, number) : read_e4m3_row(out, matrix, number);
  }
  const uint8_t* block = static_cast<const uint8_t*>(matrix.storage.data) +
                         number / kTileRows * tile_bytes(matrix.format, matrix.columns) + number % kTileRows * shape.bytes;
  for (int64_t column = 0; column < matrix.columns; column += shape.columns, block += kTileRows * shape.bytes) {
    const int64_t left = matrix.columns - column;
    block_row_to_floats(split, &block, left < shape.columns ? left : shape.columns, out + column);
  }
}

}  // namespace
}  // namespace odmoe::cpu
