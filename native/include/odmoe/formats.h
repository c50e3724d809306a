// Formats of weights, on a device and outside it. C++17, so that device code can include it. Functions are static, because the
// linker must not use one instruction set's copy in the object of another.
#pragma once
#include <cstdint>

#include "odmoe/arithmetic.h"

namespace odmoe {

// Value types of weights outside the device (row-major, little-endian).
enum class ValueType : uint8_t { bf16, fp16, fp32 };

// Formats in which a backend stores a matrix. Each backend chooses the layout. fixed4 holds BF16 values exactly in about 0.77 of
// their size: exponents are codes of 4 bits, and the few exponents without a code are stored separately. Some matrices do not fit
// (write_rows returns false). mxfp4 and fp8 hold values that models are shipped in (odmoe/arithmetic.h). sliced84, sliced63 and
// sliced42 hold codes of 8, 6 and 4 bits whose upper half is usable by itself (odmoe/slices.h). The others are block formats
// (below): they hold what a split of the same name and the same number holds.
enum class WeightFormat : uint64_t {
  bf16,
  fp16,
  fp32,
  int8,
  nf4,
  fixed4,
  mxfp4,
  fp8,
  sliced84,
  sliced63,
  sliced42,
  fp8_row = 32,
  fp8_tile,
  mxfp8,
  nvfp4_multiplied,
  nvfp4_divided,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  grouped4,
  grouped8,
  shipped = 255  // for loading: each matrix in the format that holds its values as they are shipped
};

// A format or split of grouped codes has its parameters in the bits above the lowest eight (GroupedCodes); this is the enumerator
// without them.
static constexpr WeightFormat kind_of(WeightFormat format) {
  return static_cast<WeightFormat>(static_cast<uint64_t>(format) & 0xff);
}

// Bits of the upper slice's codes, and as many of the lower slice's; 0 for a format without slices.
static constexpr int slice_bits(WeightFormat format) {
  switch (kind_of(format)) {
    case WeightFormat::sliced84: return 4;
    case WeightFormat::sliced63: return 3;
    case WeightFormat::sliced42: return 2;
    default: return 0;
  }
}

// True if single rows of this format can be looked up. Columns of grouped codes may be in another order.
static constexpr bool is_embedding_format(WeightFormat format) {
  return format != WeightFormat::mxfp4 && format != WeightFormat::fp8 && slice_bits(format) == 0 &&
         kind_of(format) != WeightFormat::grouped4 && kind_of(format) != WeightFormat::grouped8;
}

// The ways to cut values into byte planes in a pack (docs/pack-format.md).
//  bf16_e8_sm8: plane 0 exponent byte, plane 1 sign (bit 7) and mantissa (bits 0-6)
//  fp16_hi8_lo8: plane 0 high byte, plane 1 low byte
//  fp32_e8_sm8_r16: plane 0 exponent byte, plane 1 sign and mantissa bits 22-16, plane 2 the low 16 bits
//  fp16_e5_lo8_s1m2: plane 0 exponent (bits 0-4), plane 1 low byte, plane 2 sign (bit 2) and mantissa bits 9 and 8
//  mxfp4: plane 0 codes (kMxfp4Values), two a byte, the lower column in the low half; plane 1 a power of two for every 32 columns of a
//  row, as its exponent + 127 (E8M0). Columns are a multiple of 32
//  fp8: plane 0 E4M3 values, one a byte; plane 1 an FP32 scale for every 128 columns of a row
//  sliced84, sliced63, sliced42: plane 0 the upper slice, plane 1 the lower slice (odmoe/slices.h)
//  the others: block formats, below
enum class Split : uint64_t {
  none_bf16,
  none_fp16,
  none_fp32,
  bf16_e8_sm8,
  fp16_hi8_lo8,
  fp32_e8_sm8_r16,
  fp16_e5_lo8_s1m2,
  mxfp4,
  fp8,
  sliced84,
  sliced63,
  sliced42,
  fp8_row = 32,
  fp8_tile,
  mxfp8,
  nvfp4_multiplied,
  nvfp4_divided,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  grouped4,
  grouped8
};

static constexpr Split kind_of(Split split) { return static_cast<Split>(static_cast<uint64_t>(split) & 0xff); }

// True for the block formats, whose split and device format have the same number.
static constexpr bool is_blocks(Split split) { return static_cast<uint64_t>(kind_of(split)) >= 32; }
static constexpr bool is_blocks(WeightFormat format) {
  return static_cast<uint64_t>(kind_of(format)) >= 32 && format != WeightFormat::shipped;
}

inline constexpr int kMaxPlanes = 3;

// Block formats. A row of a GGUF format (q4_0 ... iq4_xs) is a sequence of whole blocks, as a file has them: one plane. The other
// block formats have two planes: codes, and what belongs to them.
//  fp8_row: E4M3 values, and one FP32 scale for the row
//  fp8_tile: E4M3 values, and an FP32 scale for every 128 columns; the rows of each four (4 r ... 4 r + 3) have equal scales
//  mxfp8: E4M3 values, and a power of two (E8M0) for every 32 columns
//  nvfp4: codes (kMxfp4Values), two a byte, the lower column in the low half; an E4M3 scale for every 16 columns, and behind them
//  the matrix's FP32 scale, by which value * scale is multiplied or divided
//  grouped4, grouped8: codes of 4 bits, two a byte, the lower column in the low half, or of 8 bits; behind one another the groups'
//  scales (GroupedCodes::scales), their zero points if there are any (as wide as codes, two a byte; the last byte is filled up), and
//  order_bytes of the matrix's column order. Weight = (code - zero) * scale; without zero points zero is 8 or 128
// Column order: column j of the stored codes is column order[j] of the matrix. It has 16 bits for each column, and is cut into
// pieces of order_bytes: row r holds the bytes from r * order_bytes on, and those behind the last column are 0.
struct BlockShape {
  int columns = 0;  // of a block; 0: not a GGUF format
  int bytes = 0;
};

static constexpr BlockShape block_shape(Split split) {
  switch (kind_of(split)) {
    case Split::q4_0: return {32, 18};
    case Split::q4_1: return {32, 20};
    case Split::q5_0: return {32, 22};
    case Split::q5_1: return {32, 24};
    case Split::q8_0: return {32, 34};
    case Split::q2_k: return {256, 84};
    case Split::q3_k: return {256, 110};
    case Split::q4_k: return {256, 144};
    case Split::q5_k: return {256, 176};
    case Split::q6_k: return {256, 210};
    case Split::iq4_nl: return {32, 18};
    case Split::iq4_xs: return {256, 136};
    default: return {};
  }
}

enum class ScaleType : uint8_t { bf16, fp16, fp32 };

// The parameters of grouped codes.
struct GroupedCodes {
  int bits = 4;
  ScaleType scales = ScaleType::bf16;
  bool zeros = false;
  int group = 0;        // columns with one scale, a multiple of 32; 0: the whole row
  int order_bytes = 0;  // 0: columns are in order

  constexpr int64_t groups(int64_t columns) const { return group == 0 ? 1 : (columns + group - 1) / group; }
  constexpr int64_t scale_bytes(int64_t columns) const { return groups(columns) * (scales == ScaleType::fp32 ? 4 : 2); }
  constexpr int64_t zero_bytes(int64_t columns) const { return zeros ? (groups(columns) * bits + 7) / 8 : 0; }
  constexpr int64_t code_bytes(int64_t columns) const { return (columns * bits + 7) / 8; }
};

// The largest group and order_bytes: each has 16 bits.
inline constexpr int kMostGroupedNumber = 65535;

// Bits 8-9: scales; 10: zeros; 16-31: group; 32-47: order_bytes.
static constexpr uint64_t grouped_bits(const GroupedCodes& codes) {
  return static_cast<uint64_t>(codes.bits == 4 ? Split::grouped4 : Split::grouped8) | static_cast<uint64_t>(codes.scales) << 8 |
         static_cast<uint64_t>(codes.zeros ? 1 : 0) << 10 | static_cast<uint64_t>(codes.group) << 16 |
         static_cast<uint64_t>(codes.order_bytes) << 32;
}
static constexpr GroupedCodes grouped_codes(uint64_t bits) {
  GroupedCodes codes;
  codes.bits = static_cast<Split>(bits & 0xff) == Split::grouped4 ? 4 : 8;
  codes.scales = static_cast<ScaleType>(bits >> 8 & 3);
  codes.zeros = (bits >> 10 & 1) != 0;
  codes.group = static_cast<int>(bits >> 16 & 0xffff);
  codes.order_bytes = static_cast<int>(bits >> 32 & 0xffff);
  return codes;
}
static constexpr GroupedCodes grouped_codes(Split split) { return grouped_codes(static_cast<uint64_t>(split)); }
static constexpr GroupedCodes grouped_codes(WeightFormat format) { return grouped_codes(static_cast<uint64_t>(format)); }
static constexpr bool is_grouped(Split split) { return kind_of(split) == Split::grouped4 || kind_of(split) == Split::grouped8; }
static constexpr bool is_grouped(WeightFormat format) { return is_blocks(format) && is_grouped(static_cast<Split>(format)); }

inline constexpr int kTileScaleRows = 4;
inline constexpr int kNvfp4Block = 16;
inline constexpr int kMxfp8Block = 32;

// Bytes of a row of `columns` values of a block format in one plane.
static constexpr int64_t block_plane_row_bytes(Split split, int plane, int64_t columns) {
  const BlockShape block = block_shape(split);
  if (block.columns != 0) return (columns + block.columns - 1) / block.columns * block.bytes;
  switch (kind_of(split)) {
    case Split::fp8_row: return plane == 0 ? columns : 4;
    case Split::fp8_tile: return plane == 0 ? columns : (columns + kFp8Block - 1) / kFp8Block * 4;
    case Split::mxfp8: return plane == 0 ? columns : (columns + kMxfp8Block - 1) / kMxfp8Block;
    case Split::nvfp4_multiplied:
    case Split::nvfp4_divided: return plane == 0 ? (columns + 1) / 2 : (columns + kNvfp4Block - 1) / kNvfp4Block + 4;
    default: break;
  }
  const GroupedCodes codes = grouped_codes(split);
  return plane == 0 ? codes.code_bytes(columns) : codes.scale_bytes(columns) + codes.zero_bytes(columns) + codes.order_bytes;
}

// Bytes of a row of a block format in all its planes.
static constexpr int64_t block_row_bytes(WeightFormat format, int64_t columns) {
  const auto split = static_cast<Split>(format);
  return block_plane_row_bytes(split, 0, columns) +
         (block_shape(split).columns != 0 ? 0 : block_plane_row_bytes(split, 1, columns));
}

// Columns that a view must keep together.
static constexpr int columns_together(Split split) {
  if (block_shape(split).columns != 0) return block_shape(split).columns;
  switch (kind_of(split)) {
    case Split::mxfp4:
    case Split::mxfp8: return kMxfp4Block;
    case Split::nvfp4_multiplied:
    case Split::nvfp4_divided: return kNvfp4Block;
    case Split::fp8:
    case Split::fp8_tile: return kFp8Block;
    default: return 1;
  }
}

// Bits of the codes in each plane; 0 for a split without slices.
static constexpr int slice_bits(Split split) {
  switch (kind_of(split)) {
    case Split::sliced84: return 4;
    case Split::sliced63: return 3;
    case Split::sliced42: return 2;
    default: return 0;
  }
}

// Groups of a row, and bytes of the codes of one group in one slice.
static constexpr int64_t slice_groups(int64_t columns) { return (columns + kSliceGroup - 1) / kSliceGroup; }
static constexpr int64_t slice_code_bytes(int bits) { return int64_t{bits} * kSliceGroup / 8; }

// True for values that are stored as codes with scales; several values share a scale.
static constexpr bool is_quantized(Split split) {
  return split == Split::mxfp4 || split == Split::fp8 || slice_bits(split) != 0 || is_blocks(split);
}

static constexpr int plane_count(Split split) {
  if (is_blocks(split)) return block_shape(split).columns == 0 ? 2 : 1;
  if (split == Split::bf16_e8_sm8 || split == Split::fp16_hi8_lo8 || is_quantized(split)) return 2;
  return split == Split::fp32_e8_sm8_r16 || split == Split::fp16_e5_lo8_s1m2 ? 3 : 1;
}

// Bytes of one value in all planes, and in one of them. Only for splits that are not quantized.
static constexpr int value_bytes(Split split) { return split == Split::none_fp32 || split == Split::fp32_e8_sm8_r16 ? 4 : 2; }
static constexpr int plane_value_bytes(Split split, int plane) {
  if (plane_count(split) == 1) return value_bytes(split);
  return split == Split::fp32_e8_sm8_r16 && plane == 2 ? 2 : 1;
}

// Bytes of a row of `columns` values in one plane.
static constexpr int64_t plane_row_bytes(Split split, int plane, int64_t columns) {
  if (split == Split::mxfp4) return plane == 0 ? (columns + 1) / 2 : (columns + kMxfp4Block - 1) / kMxfp4Block;
  if (split == Split::fp8) return plane == 0 ? columns : (columns + kFp8Block - 1) / kFp8Block * 4;
  if (is_blocks(split)) return block_plane_row_bytes(split, plane, columns);
  if (slice_bits(split) != 0) {
    return slice_groups(columns) * (slice_code_bytes(slice_bits(split)) + (plane == 0 ? kSliceScaleBytes : 0));
  }
  return columns * plane_value_bytes(split, plane);
}

// The ways to store the plain bytes of a chunk of a plane (docs/pack-format.md, "Codecs").
enum class CodecKind : uint8_t { raw, zstd, lz4hc, fixed4, huffman, packed3, e4m3 };

}  // namespace odmoe
