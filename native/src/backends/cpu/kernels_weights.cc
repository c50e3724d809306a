// Turns shipped values into the layouts of weight_layout.h, and a row back into FP32.
#include "kernels_blocks_write.h"
#include "kernels_fixed4_write.h"
#include "kernels_shipped.h"
#include "kernels_sliced.h"
#include "kernels_units.h"

namespace odmoe::cpu {
namespace {

// The magnitude as bits that sort like it; NaN counts as zero.
ODMOE_INLINE uint32_t magnitude_bits(float x) {
  const uint32_t bits = float_bits(x) & 0x7fffffffu;
  return bits > 0x7f800000u ? 0u : bits;
}

template <class Values>
ODMOE_INLINE float greatest_magnitude(const Values& values, int64_t begin, int64_t end) {
  uint32_t most = 0;
  for (int64_t i = begin; i < end; ++i) {
    const uint32_t bits = magnitude_bits(values.value(i));
    most = bits > most ? bits : most;
  }
  return float_of_bits(most);
}

template <class Values>
ODMOE_INLINE uint32_t bf16_bits(const Values& values, int64_t i) {
  if constexpr (Values::kBf16) {
    return values.bits16(i);
  } else {
    return bf16_of_float(values.value(i));
  }
}

// 32 values in the order of the bf16 layout.
template <class Values>
ODMOE_INLINE void write_bf16_block(const Values& values, int64_t begin, uint8_t* out) {
  if constexpr (Values::kExponentPlane) {
    Simd::join_bf16(values.planes[0] + begin, values.planes[1] + begin, out);
  } else {
    uint32_t words[16];
    for (int i = 0; i < 16; ++i) words[i] = bf16_bits(values, begin + i) | bf16_bits(values, begin + 16 + i) << 16;
    __builtin_memcpy(out, words, sizeof words);
  }
}

// Writes one row to its places in the tile, block by block of columns; `row` is its number in the tile.
template <class Values>
void write_bf16_row(const Values& values, int64_t columns, uint8_t* tile, int row) {
  uint8_t* out = tile + row * 64;
  int64_t begin = 0;
  for (; begin + kLanes <= columns; begin += kLanes, out += Bf16Tile::kBlockBytes) write_bf16_block(values, begin, out);
  if (begin == columns) return;
  alignas(64) uint32_t words[16] = {};
  for (int64_t i = 0; i < columns - begin; ++i) words[i % 16] |= bf16_bits(values, begin + i) << (i < 16 ? 0 : 16);
  __builtin_memcpy(out, words, sizeof words);
}

template <class Values>
void write_fp16_row(const Values& values, int64_t columns, uint8_t* tile, int row) {
  for (int64_t block = 0; block < column_blocks(columns); ++block) {
    alignas(64) uint16_t bits[kLanes] = {};
    const int64_t count = columns - block * kLanes < kLanes ? columns - block * kLanes : kLanes;
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (Values::kFp16) {
        bits[i] = values.bits16(block * kLanes + i);
      } else {
        bits[i] = half_of_float(values.value(block * kLanes + i));
      }
    }
    __builtin_memcpy(tile + block * Fp16Tile::kBlockBytes + row * 64, bits, sizeof bits);
  }
}

template <class Values>
void write_fp32_row(const Values& values, int64_t columns, uint8_t* tile, int row) {
  for (int64_t block = 0; block < column_blocks(columns); ++block) {
    alignas(64) float block_values[kLanes] = {};
    const int64_t count = columns - block * kLanes < kLanes ? columns - block * kLanes : kLanes;
    for (int64_t i = 0; i < count; ++i) block_values[i] = values.value(block * kLanes + i);
    __builtin_memcpy(tile + block * Fp32Tile::kBlockBytes + row * 128, block_values, sizeof block_values);
  }
}

// Reads kCount values from `begin` on; values behind the first `count` are zeros.
template <int kCount, class Values>
ODMOE_INLINE void take_values(float (&out)[kCount], const Values& values, int64_t begin, int64_t count) {
  if (count >= kCount) {
    // A separate case, because compilers vectorize a loop of fixed length.
    for (int i = 0; i < kCount; ++i) out[i] = values.value(begin + i);
  } else {
    for (int i = 0; i < kCount; ++i) out[i] = i < count ? values.value(begin + i) : 0.0f;
  }
}

template <class Values>
void write_int8_row(const Values& values, int64_t columns, uint8_t* tile, int row, float* row_scale) {
  const float scale = greatest_magnitude(values, 0, columns) / 127.0f;
  *row_scale = scale;
  for (int64_t block = 0; block < column_blocks(columns); ++block) {
    alignas(64) int8_t integers[kLanes] = {};
    if (scale != 0.0f) {
      alignas(64) float x[kLanes];
      take_values(x, values, block * kLanes, columns - block * kLanes);
      for (int i = 0; i < kLanes; ++i) {
        x[i] = x[i] / scale;
        x[i] = x[i] > 127.0f ? 127.0f : x[i];
        x[i] = x[i] < -127.0f ? -127.0f : x[i];
        x[i] = x[i] == x[i] ? x[i] : 0.0f;
        integers[i] = static_cast<int8_t>(float_bits(x[i] + kRoundMagic) - float_bits(kRoundMagic));
      }
    }
    __builtin_memcpy(tile + block * Int8Tile::kBlockBytes + row * kLanes, integers, sizeof integers);
  }
}

template <class Values>
void write_nf4_row(const Values& values, int64_t columns, uint8_t* tile, int row) {
  for (int64_t first = 0; first < columns; first += kNf4Block) {
    uint8_t* pair = tile + first / kNf4Block * kNf4PairBytes;
    const int64_t count = columns - first < kNf4Block ? columns - first : kNf4Block;
    const float scale = greatest_magnitude(values, first, first + count);
    __builtin_memcpy(pair + row * 4, &scale, 4);
    // 0 / 0 is NaN, which becomes kNf4Zero like every NaN; a zero behind the last column becomes kNf4Zero, too.
    alignas(64) float x[kNf4Block];
    take_values(x, values, first, count);
    alignas(64) uint32_t codes[kNf4Block];
    for (int i = 0; i < kNf4Block; ++i) {
      x[i] = x[i] / scale;
      codes[i] = x[i] == x[i] ? 0u : static_cast<uint32_t>(kNf4Zero);
    }
    for (int m = 0; m < 15; ++m) {
      for (int i = 0; i < kNf4Block; ++i) codes[i] += x[i] > kNf4Midpoints[m] ? 1u : 0u;
    }
    for (int half = 0; half < 2; ++half) {
      uint8_t* out = pair + 16 + half * 64 + row * 16;
      for (int i = 0; i < 16; ++i) {
        out[i] = static_cast<uint8_t>(codes[half * 32 + i] | codes[half * 32 + 16 + i] << 4);
      }
    }
  }
}

// Reads one row as planes of bytes; false if a value is not a BF16.
template <class Values>
bool take_fixed4_row(const Values& values, int64_t columns, uint8_t* exponents, uint8_t* sign_mantissas) {
  uint32_t lost = 0;
  for (int64_t i = 0; i < columns; ++i) {
    uint32_t bits;
    if constexpr (Values::kBf16) {
      bits = static_cast<uint32_t>(values.bits16(i)) << 16;
    } else {
      bits = float_bits(values.value(i));
      lost |= bits & 0xffffu;
    }
    exponents[i] = static_cast<uint8_t>(bits >> 23);
    sign_mantissas[i] = static_cast<uint8_t>((bits >> 24 & 0x80u) | (bits >> 16 & 0x7fu));
  }
  return lost == 0;
}

// Writes tile by tile. Rows of the first tile that earlier calls wrote stay.
template <class Values>
bool write_fixed4_rows(const Values& values, Matrix& matrix, int64_t first_row, int64_t rows, uint8_t* scratch) {
  // An escape has 16 bits for the number of its block.
  if (column_blocks(matrix.columns) > 65536) return false;
  const Fixed4Planes planes(scratch, matrix.columns);
  const int64_t end = first_row + rows;
  for (int64_t row = first_row; row < end;) {
    const int64_t tile = row / kTileRows;
    uint8_t* const data = static_cast<uint8_t*>(matrix.storage.data) + tile * tile_bytes(matrix.format, matrix.columns);
    int in_tile = static_cast<int>(row % kTileRows);
    // Before its first row is written, the memory of a tile holds no valid tile.
    if (in_tile > 0) read_fixed4_planes(planes, data, matrix.columns, in_tile);
    for (; in_tile < kTileRows && row < end; ++in_tile, ++row) {
      const int64_t to = in_tile * planes.row_bytes;
      if (!take_fixed4_row(values.row(row - first_row, matrix.columns), matrix.columns, planes.exponents + to,
                           planes.sign_mantissas + to)) {
        return false;
      }
    }
    if (!write_fixed4_tile(data, planes, matrix.columns, in_tile)) return false;
  }
  return true;
}

// The lowest four codes of 4 bits, 16 bits apart.
ODMOE_INLINE uint64_t four_codes(uint64_t codes) {
  codes &= 0xffffu;
  codes = (codes | codes << 24) & 0x000000ff000000ffu;
  return (codes | codes << 12) & 0x000f000f000f000fu;
}

void write_mxfp4_row(const Source<Split::mxfp4>& values, int64_t columns, uint8_t* tile, int row) {
  uint8_t* codes = tile + mxfp4_scale_bytes(columns) + row * (kLanes / 2);
  for (int64_t block = 0; block < column_blocks(columns); ++block, codes += kMxfp4BlockBytes) {
    tile[block * kTileRows + row] = values.planes[1][block];
    // Columns 0 to 15, then columns 16 to 31, four bits each.
    uint64_t halves[2];
    __builtin_memcpy(halves, values.planes[0] + block * (kLanes / 2), sizeof halves);
    for (int part = 0; part < 2; ++part) {
      const uint64_t low = halves[0] >> (32 * part);
      const uint64_t high = halves[1] >> (32 * part);
      const uint64_t bytes = four_codes(low) | four_codes(low >> 16) << 4 | four_codes(high) << 8 | four_codes(high >> 16) << 12;
      __builtin_memcpy(codes + 8 * part, &bytes, sizeof bytes);
    }
  }
}

void write_fp8_row(const Source<Split::fp8>& values, int64_t columns, uint8_t* tile, int row) {
  float* const scales = reinterpret_cast<float*>(tile) + row;
  for (int64_t i = 0; i < columns; i += kFp8Block) scales[i / kFp8Block * kTileRows] = values.scale(i) * kFp8ScaleFactor;
  uint8_t* to = tile + fp8_scale_bytes(columns) + row * kLanes;
  const uint8_t* from = values.planes[0];
  for (int64_t left = columns; left > 0; left -= kLanes, from += kLanes, to += kFp8BlockBytes) {
    uint8_t codes[kLanes] = {};
    const int64_t count = left < kLanes ? left : kLanes;
    for (int64_t i = 0; i < count; ++i) codes[i] = from[i];
    for (int i = 0; i < 16; ++i) {
      to[2 * i] = codes[i];
      to[2 * i + 1] = codes[16 + i];
    }
  }
}

using Floats = Source<Split::none_fp32>;

// FP32 values as a row of a format that has no codes of its own in a pack.
bool write_floats(const Floats& values, const Matrix& matrix, int64_t row) {
  const int64_t columns = matrix.columns;
  uint8_t* const storage = static_cast<uint8_t*>(matrix.storage.data);
  uint8_t* const tile = storage + row / kTileRows * tile_bytes(matrix.format, columns);
  const int in_tile = static_cast<int>(row % kTileRows);
  float* const scales = reinterpret_cast<float*>(storage + scales_offset(matrix.format, matrix.rows, columns));
  switch (matrix.format) {
    case WeightFormat::bf16: write_bf16_row(values, columns, tile, in_tile); break;
    case WeightFormat::fp16: write_fp16_row(values, columns, tile, in_tile); break;
    case WeightFormat::fp32: write_fp32_row(values, columns, tile, in_tile); break;
    case WeightFormat::int8: write_int8_row(values, columns, tile, in_tile, scales + row); break;
    case WeightFormat::nf4: write_nf4_row(values, columns, tile, in_tile); break;
    default: return false;
  }
  return true;
}

// Writes a row without a change of its values, if the format holds just such values.
template <Split kSplit>
bool write_same_values(const Source<kSplit>& values, const Matrix& matrix, int64_t row) {
  const int64_t columns = matrix.columns;
  uint8_t* const tile = static_cast<uint8_t*>(matrix.storage.data) + row / kTileRows * tile_bytes(matrix.format, columns);
  const int in_tile = static_cast<int>(row % kTileRows);
  if constexpr (Source<kSplit>::kBf16) {
    if (matrix.format == WeightFormat::bf16) {
      write_bf16_row(values, columns, tile, in_tile);
      return true;
    }
  }
  if constexpr (Source<kSplit>::kFp16) {
    if (matrix.format == WeightFormat::fp16) {
      write_fp16_row(values, columns, tile, in_tile);
      return true;
    }
  }
  if constexpr (kSplit == Split::mxfp4) {
    if (matrix.format == WeightFormat::mxfp4) {
      write_mxfp4_row(values, columns, tile, in_tile);
      return true;
    }
  }
  if constexpr (kSplit == Split::fp8) {
    if (matrix.format == WeightFormat::fp8) {
      write_fp8_row(values, columns, tile, in_tile);
      return true;
    }
  }
  return false;
}

// scratch: the floats of a row. Values are not converted to codes with scales: such formats are only for values that are shipped so.
template <Split kSplit>
bool write_plain_rows(Matrix& matrix, int64_t first_row, int64_t rows, const uint8_t* const* planes, uint8_t* scratch) {
  Source<kSplit> source{};
  for (int i = 0; i < Source<kSplit>::kPlanes; ++i) source.planes[i] = planes[i];
  if (matrix.format == WeightFormat::fixed4) return write_fixed4_rows(source, matrix, first_row, rows, scratch);
  for (int64_t i = 0; i < rows; ++i) {
    const Source<kSplit> values = source.row(i, matrix.columns);
    if (write_same_values(values, matrix, first_row + i)) continue;
    Floats floats{{values.planes[0], nullptr, nullptr}};
    if constexpr (kSplit != Split::none_fp32) {
      float* const row = reinterpret_cast<float*>(scratch);
      for (int64_t column = 0; column < matrix.columns; ++column) row[column] = values.value(column);
      floats.planes[0] = scratch;
    }
    if (!write_floats(floats, matrix, first_row + i)) return false;
  }
  return true;
}

template <Split kSplit>
bool write_rows_from(Matrix& matrix, int64_t first_row, int64_t rows, const uint8_t* const* planes, uint8_t* scratch) {
  if constexpr (slice_bits(kSplit) == 0) {
    return write_plain_rows<kSplit>(matrix, first_row, rows, planes, scratch);
  } else {
    if (slice_bits(matrix.format) != slice_bits(kSplit)) return false;
    write_sliced_rows<kSplit>(matrix, first_row, rows, planes);
    return true;
  }
}

// Block formats keep their own format, or become another one by way of FP32. fixed4 is for values that are shipped as such, and a
// column order is kept, because a row has only a piece of it. scratch: the floats of a row.
bool write_rows_of_blocks(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const uint8_t* const* planes,
                          uint8_t* scratch) {
  if (static_cast<uint64_t>(matrix.format) == static_cast<uint64_t>(split)) {
    write_same_blocks(matrix, first_row, rows, planes);
    return true;
  }
  if (matrix.format == WeightFormat::fixed4) return false;
  if (is_grouped(split) && grouped_codes(split).order_bytes != 0) return false;
  const uint8_t* own[kMaxPlanes] = {planes[0], plane_count(split) == 2 ? planes[1] : nullptr, nullptr};
  for (int64_t i = 0; i < rows; ++i) {
    block_row_to_floats(split, own, matrix.columns, reinterpret_cast<float*>(scratch));
    if (!write_floats({{scratch, nullptr, nullptr}}, matrix, first_row + i)) return false;
    for (int plane = 0; plane < plane_count(split); ++plane) own[plane] += block_plane_row_bytes(split, plane, matrix.columns);
  }
  return true;
}

template <class Tile>
void read_tile_row(float* out, const Matrix& matrix, int64_t row) {
  const uint8_t* storage = static_cast<const uint8_t*>(matrix.storage.data);
  const Tile tile(storage + row / kTileRows * tile_bytes(matrix.format, matrix.columns), matrix.columns, 0);
  for (int64_t column = 0; column < matrix.columns; column += kLanes) {
    alignas(64) float values[kLanes];
    for (int pair = 0; pair < kPairs; ++pair) {
      Vector low, high;
      tile.expand(column / kLanes, static_cast<int>(row % kTileRows), pair, low, high);
      Simd::store(values + pair * kWidth, low);
      Simd::store(values + 16 + pair * kWidth, high);
    }
    const int64_t count = matrix.columns - column < kLanes ? matrix.columns - column : kLanes;
    for (int64_t i = 0; i < count; ++i) out[column + i] = values[i];
  }
}

void read_fixed4_row(float* out, const Matrix& matrix, int64_t row) {
  const uint8_t* storage = static_cast<const uint8_t*>(matrix.storage.data);
  Fixed4Reader reader(storage + row / kTileRows * tile_bytes(matrix.format, matrix.columns), matrix.columns);
  for (int64_t column = 0; column < matrix.columns; column += kLanes) {
    alignas(64) uint16_t bits[kTileRows][kLanes];
    reader.expand<0>(column / kLanes, 1, reinterpret_cast<uint8_t*>(bits));
    const int64_t count = matrix.columns - column < kLanes ? matrix.columns - column : kLanes;
    for (int64_t i = 0; i < count; ++i) {
      out[column + i] = float_of_bits(static_cast<uint32_t>(bits[row % kTileRows][i % 16 * 2 + i / 16]) << 16);
    }
  }
}

// The layout is that of write_int8_row: a value is the integer times the row's scale.
void read_int8_row(float* out, const Matrix& matrix, int64_t row) {
  const uint8_t* const storage = static_cast<const uint8_t*>(matrix.storage.data);
  const uint8_t* const tile = storage + row / kTileRows * tile_bytes(matrix.format, matrix.columns);
  const auto* const scales = reinterpret_cast<const float*>(storage + scales_offset(matrix.format, matrix.rows, matrix.columns));
  const float scale = scales[row];
  for (int64_t column = 0; column < matrix.columns; ++column) {
    const uint8_t* const at = tile + column / kLanes * Int8Tile::kBlockBytes + row % kTileRows * kLanes + column % kLanes;
    out[column] = static_cast<float>(static_cast<int8_t>(*at)) * scale;
  }
}

// The layout is that of write_nf4_row: a value is the code's value times the block's scale.
void read_nf4_row(float* out, const Matrix& matrix, int64_t row) {
  const uint8_t* const storage = static_cast<const uint8_t*>(matrix.storage.data);
  const uint8_t* const tile = storage + row / kTileRows * tile_bytes(matrix.format, matrix.columns);
  for (int64_t column = 0; column < matrix.columns; ++column) {
    const uint8_t* const pair = tile + column / kNf4Block * kNf4PairBytes;
    const int64_t in_half = column % kNf4Block % 32;
    const uint8_t codes = pair[16 + column % kNf4Block / 32 * 64 + row % kTileRows * 16 + in_half % 16];
    float scale;
    __builtin_memcpy(&scale, pair + row % kTileRows * 4, 4);
    out[column] = kNf4Values[in_half < 16 ? codes & 15 : codes >> 4] * scale;
  }
}

}  // namespace

bool ODMOE_INSTRUCTION_SET::write_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const uint8_t* const* planes,
                                       uint8_t* scratch) {
  if (is_blocks(split)) return write_rows_of_blocks(matrix, first_row, rows, split, planes, scratch);
  switch (split) {
    case Split::none_bf16: return write_rows_from<Split::none_bf16>(matrix, first_row, rows, planes, scratch);
    case Split::none_fp16: return write_rows_from<Split::none_fp16>(matrix, first_row, rows, planes, scratch);
    case Split::none_fp32: return write_rows_from<Split::none_fp32>(matrix, first_row, rows, planes, scratch);
    case Split::bf16_e8_sm8: return write_rows_from<Split::bf16_e8_sm8>(matrix, first_row, rows, planes, scratch);
    case Split::fp16_hi8_lo8: return write_rows_from<Split::fp16_hi8_lo8>(matrix, first_row, rows, planes, scratch);
    case Split::fp32_e8_sm8_r16: return write_rows_from<Split::fp32_e8_sm8_r16>(matrix, first_row, rows, planes, scratch);
    case Split::fp16_e5_lo8_s1m2: return write_rows_from<Split::fp16_e5_lo8_s1m2>(matrix, first_row, rows, planes, scratch);
    case Split::mxfp4: return write_rows_from<Split::mxfp4>(matrix, first_row, rows, planes, scratch);
    case Split::fp8: return write_rows_from<Split::fp8>(matrix, first_row, rows, planes, scratch);
    case Split::sliced84: return write_rows_from<Split::sliced84>(matrix, first_row, rows, planes, scratch);
    case Split::sliced63: return write_rows_from<Split::sliced63>(matrix, first_row, rows, planes, scratch);
    case Split::sliced42: return write_rows_from<Split::sliced42>(matrix, first_row, rows, planes, scratch);
    default: break;
  }
  return false;
}

void ODMOE_INSTRUCTION_SET::read_row(float* out, const Matrix& matrix, int64_t row) {
  if (matrix.format == WeightFormat::int8) read_int8_row(out, matrix, row);
  if (matrix.format == WeightFormat::nf4) read_nf4_row(out, matrix, row);
  if (matrix.format == WeightFormat::fixed4) read_fixed4_row(out, matrix, row);
  if (matrix.format == WeightFormat::bf16) read_tile_row<Bf16Tile>(out, matrix, row);
  if (matrix.format == WeightFormat::fp16) read_tile_row<Fp16Tile>(out, matrix, row);
  if (matrix.format == WeightFormat::fp32) read_tile_row<Fp32Tile>(out, matrix, row);
  if (is_blocks(matrix.format)) read_block_row(out, matrix, row);
}

}  // namespace odmoe::cpu
