// Values as they are shipped, row-major in planes of bytes.
#pragma once
#include "kernels_base.h"
#include "odmoe/quantized_values.h"

namespace odmoe::cpu {
namespace {

// Reads value i of a row as FP32 (exact; fp8 is rounded once), and as the 16 bits of a BF16 or FP16. row() gives one of several
// consecutive rows.
template <Split kSplit>
struct Source {
  static constexpr int kPlanes = plane_count(kSplit);
  static constexpr bool kExponentPlane = kSplit == Split::bf16_e8_sm8;
  static constexpr bool kBf16 = kSplit == Split::none_bf16 || kSplit == Split::bf16_e8_sm8 || kSplit == Split::mxfp4;
  static constexpr bool kFp16 = kSplit == Split::none_fp16 || kSplit == Split::fp16_hi8_lo8 || kSplit == Split::fp16_e5_lo8_s1m2;
  const uint8_t* planes[3];

  ODMOE_INLINE Source row(int64_t number, int64_t columns) const {
    Source moved = *this;
    for (int i = 0; i < kPlanes; ++i) moved.planes[i] += number * plane_row_bytes(kSplit, i, columns);
    return moved;
  }

  // Only for mxfp4.
  ODMOE_INLINE uint8_t code(int64_t i) const { return static_cast<uint8_t>(planes[0][i / 2] >> (i % 2 * 4) & 15); }
  // Only for fp8.
  ODMOE_INLINE float scale(int64_t i) const {
    float scale;
    __builtin_memcpy(&scale, planes[1] + i / kFp8Block * 4, 4);
    return scale;
  }

  ODMOE_INLINE uint16_t bits16(int64_t i) const {
    if constexpr (kSplit == Split::bf16_e8_sm8) {
      const uint32_t rest = planes[1][i];
      return static_cast<uint16_t>((rest & 0x80u) << 8 | static_cast<uint32_t>(planes[0][i]) << 7 | (rest & 0x7fu));
    } else if constexpr (kSplit == Split::fp16_hi8_lo8) {
      return static_cast<uint16_t>(static_cast<uint32_t>(planes[0][i]) << 8 | planes[1][i]);
    } else if constexpr (kSplit == Split::fp16_e5_lo8_s1m2) {
      const uint32_t top = planes[2][i];
      return static_cast<uint16_t>((top & 4u) << 13 | (planes[0][i] & 0x1fu) << 10 | (top & 3u) << 8 | planes[1][i]);
    } else if constexpr (kSplit == Split::mxfp4) {
      return static_cast<uint16_t>(float_bits(kMxfp4Values[code(i)] * kE8m0Values.values[planes[1][i / kMxfp4Block]]) >> 16);
    } else {
      uint16_t bits;
      __builtin_memcpy(&bits, planes[0] + 2 * i, 2);
      return bits;
    }
  }

  ODMOE_INLINE float value(int64_t i) const {
    if constexpr (kBf16) {
      return float_of_bits(static_cast<uint32_t>(bits16(i)) << 16);
    } else if constexpr (kFp16) {
      return float_of_half(bits16(i));
    } else if constexpr (kSplit == Split::fp32_e8_sm8_r16) {
      uint16_t rest;
      __builtin_memcpy(&rest, planes[2] + 2 * i, 2);
      const uint32_t middle = planes[1][i];
      return float_of_bits((middle & 0x80u) << 24 | static_cast<uint32_t>(planes[0][i]) << 23 | (middle & 0x7fu) << 16 | rest);
    } else if constexpr (kSplit == Split::fp8) {
      return kE4m3Values.values[planes[0][i]] * scale(i);
    } else {
      float x;
      __builtin_memcpy(&x, planes[0] + 4 * i, 4);
      return x;
    }
  }
};

}  // namespace
}  // namespace odmoe::cpu
