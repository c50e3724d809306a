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
// sliced42 hold codes of 8, 6 and 4 bits whose upper half is usable by itself (odmoe/slices.h).
enum class WeightFormat : uint8_t { bf16, fp16, fp32, int8, nf4, fixed4, mxfp4, fp8, sliced84, sliced63, sliced42 };

// Bits of the upper slice's codes, and as many of the lower slice's; 0 for a format without slices.
static constexpr int slice_bits(WeightFormat format) {
  switch (format) {
    case WeightFormat::sliced84: return 4;
    case WeightFormat::sliced63: return 3;
    case WeightFormat::sliced42: return 2;
    default: return 0;
  }
}

// True if single rows of this format can be looked up.
static constexpr bool is_embedding_format(WeightFormat format) {
  return format != WeightFormat::mxfp4 && format != WeightFormat::fp8 && slice_bits(format) == 0;
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
enum class Split : uint8_t {
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
  sliced42
};

inline constexpr int kMaxPlanes = 3;

// Bits of the codes in each plane; 0 for a split without slices.
static constexpr int slice_bits(Split split) {
  switch (split) {
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
static constexpr bool is_quantized(Split split) { return split == Split::mxfp4 || split == Split::fp8 || slice_bits(split) != 0; }

static constexpr int plane_count(Split split) {
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
  if (slice_bits(split) != 0) {
    return slice_groups(columns) * (slice_code_bytes(slice_bits(split)) + (plane == 0 ? kSliceScaleBytes : 0));
  }
  return columns * plane_value_bytes(split, plane);
}

// The ways to store the plain bytes of a chunk of a plane (docs/pack-format.md, "Codecs").
enum class CodecKind : uint8_t { raw, zstd, lz4hc, fixed4, huffman, packed3 };

}  // namespace odmoe
