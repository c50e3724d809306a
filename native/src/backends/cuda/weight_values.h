// Conversions of one weight: from its shipped form to a format's stored form, and back to FP32. They give the same bits as the CPU
// backend.
#pragma once
#include "device_code.h"
#include "odmoe/formats.h"

namespace odmoe::cuda {

ODMOE_BOTH float float_of_bf16(uint32_t bits) { return float_of_bits(bits << 16); }

ODMOE_BOTH float float_of_half(uint32_t half) {
#ifdef __CUDA_ARCH__
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(static_cast<unsigned short>(half)));
  return x;
#else
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t magnitude = (half & 0x7fffu) << 13;
  const uint32_t exponent = magnitude & 0x0f800000u;
  if (exponent == 0x0f800000u) return float_of_bits(sign | (magnitude + ((255u - 31u) << 23)));
  if (exponent != 0) return float_of_bits(sign | (magnitude + ((127u - 15u) << 23)));
  // The value of a denormal is its ten bits times 2^-24.
  const float denormal = static_cast<float>(half & 0x3ffu) * 0x1p-24f;
  return float_of_bits(sign | bits_of_float(denormal));
#endif
}

// Rounds to nearest, ties to even; NaN stays NaN.
ODMOE_BOTH uint32_t bf16_of_float(float x) {
  const uint32_t bits = bits_of_float(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

// Rounds to nearest, ties to even; values that are too large become infinity.
ODMOE_BOTH uint32_t half_of_float(float x) {
  const uint32_t bits = bits_of_float(x);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x47800000u) return sign | 0x7c00u;
  if (magnitude >= 0x38800000u) {
    return sign | ((magnitude - ((127u - 15u) << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
  }
  // The sum's last bit is the denormal's (2^-24), so the addition rounds.
  return sign | (bits_of_float(float_of_bits(magnitude) + 0.5f) - bits_of_float(0.5f));
}

// An MXFP4 code: 0, 0.5, then exponent and mantissa bit count up from 1; bit 3 is the sign.
ODMOE_BOTH float mxfp4_value(uint32_t code) {
  const uint32_t magnitude = code & 7u;
  const uint32_t bits = magnitude < 2 ? magnitude * 0x3f000000u : (126u + (magnitude >> 1)) << 23 | (magnitude & 1u) << 22;
  return float_of_bits((code & 8u) << 28 | bits);
}

// E8M0: 2^(byte - 127).
ODMOE_BOTH float e8m0_value(uint32_t byte) { return float_of_bits(byte == 0 ? 0x00400000u : byte << 23); }

// An E4M3 value read as FP16, which is 256 times smaller.
ODMOE_BOTH float e4m3_small_value(uint32_t byte) { return float_of_half((byte & 0x80u) << 8 | (byte & 0x7fu) << 7); }

// Bytes of a row in one of its planes.
template <Split kSplit>
ODMOE_BOTH int64_t shipped_row_bytes(int plane, int64_t columns) {
  if constexpr (kSplit == Split::mxfp4) return plane == 0 ? columns / 2 : columns / kMxfp4Block;
  if constexpr (kSplit == Split::fp8) return plane == 0 ? columns : (columns + kFp8Block - 1) / kFp8Block * 4;
  constexpr bool kWhole = kSplit == Split::none_bf16 || kSplit == Split::none_fp16;
  if (kSplit == Split::none_fp32) return columns * 4;
  return kWhole || (kSplit == Split::fp32_e8_sm8_r16 && plane == 2) ? columns * 2 : columns;
}

// A row's values as they are shipped, in up to three planes.
template <Split kSplit>
struct ShippedValues {
  static constexpr int kPlanes = plane_count(kSplit);
  static constexpr bool kBf16 = kSplit == Split::none_bf16 || kSplit == Split::bf16_e8_sm8 || kSplit == Split::mxfp4;
  static constexpr bool kFp16 = kSplit == Split::none_fp16 || kSplit == Split::fp16_hi8_lo8 || kSplit == Split::fp16_e5_lo8_s1m2;
  static constexpr bool kFp32 = kSplit == Split::none_fp32 || kSplit == Split::fp32_e8_sm8_r16;
  const uint8_t* planes[3];

  // One of several consecutive rows.
  ODMOE_BOTH ShippedValues row(int64_t number, int64_t columns) const {
    ShippedValues moved = *this;
    for (int i = 0; i < kPlanes; ++i) moved.planes[i] += number * shipped_row_bytes<kSplit>(i, columns);
    return moved;
  }

  // Only for mxfp4 and fp8.
  ODMOE_BOTH uint32_t code(int64_t i) const {
    return kSplit == Split::mxfp4 ? planes[0][i / 2] >> (i % 2 * 4) & 15u : planes[0][i];
  }
  // Only for fp8.
  ODMOE_BOTH float scale(int64_t i) const {
    const int64_t place = i / kFp8Block * 2;
    return float_of_bits(bytes2(1, place) | bytes2(1, place + 1) << 16);
  }

  // Planes with several bytes per value may have any alignment, because rows have any number of values.
  ODMOE_BOTH uint32_t bytes2(int plane, int64_t i) const {
    return planes[plane][2 * i] | static_cast<uint32_t>(planes[plane][2 * i + 1]) << 8;
  }

  // The bits of value i in its own type (not for fp8).
  ODMOE_BOTH uint32_t bits(int64_t i) const {
    if constexpr (kSplit == Split::none_fp32) {
      return bytes2(0, 2 * i) | bytes2(0, 2 * i + 1) << 16;
    } else if constexpr (kSplit == Split::bf16_e8_sm8) {
      const uint32_t rest = planes[1][i];
      return (rest & 0x80u) << 8 | static_cast<uint32_t>(planes[0][i]) << 7 | (rest & 0x7fu);
    } else if constexpr (kSplit == Split::fp16_hi8_lo8) {
      return static_cast<uint32_t>(planes[0][i]) << 8 | planes[1][i];
    } else if constexpr (kSplit == Split::fp16_e5_lo8_s1m2) {
      const uint32_t top = planes[2][i];
      return (top & 4u) << 13 | (planes[0][i] & 0x1fu) << 10 | (top & 3u) << 8 | planes[1][i];
    } else if constexpr (kSplit == Split::fp32_e8_sm8_r16) {
      const uint32_t middle = planes[1][i];
      return (middle & 0x80u) << 24 | static_cast<uint32_t>(planes[0][i]) << 23 | (middle & 0x7fu) << 16 | bytes2(2, i);
    } else if constexpr (kSplit == Split::mxfp4) {
      return bits_of_float(mxfp4_value(code(i)) * e8m0_value(planes[1][i / kMxfp4Block])) >> 16;
    } else {
      return bytes2(0, i);
    }
  }

  ODMOE_BOTH float value(int64_t i) const {
    if constexpr (kBf16) return float_of_bf16(bits(i));
    if constexpr (kFp32) return float_of_bits(bits(i));
    if constexpr (kSplit == Split::fp8) return e4m3_small_value(code(i)) * 256.0f * scale(i);
    return float_of_half(bits(i));
  }
};

// The magnitude as bits that sort like it; NaN counts as zero.
ODMOE_BOTH uint32_t magnitude_bits(float x) {
  const uint32_t bits = bits_of_float(x) & 0x7fffffffu;
  return bits > 0x7f800000u ? 0u : bits;
}

ODMOE_BOTH float int8_scale(uint32_t greatest_magnitude) { return divided(float_of_bits(greatest_magnitude), 127.0f); }

// The integer's byte.
ODMOE_BOTH uint32_t int8_of(float x, float scale) {
  if (scale == 0.0f) return 0;
  x = divided(x, scale);
  x = x > 127.0f ? 127.0f : x;
  x = x < -127.0f ? -127.0f : x;
  x = x == x ? x : 0.0f;
  return (bits_of_float(x + kRoundMagic) - bits_of_float(kRoundMagic)) & 0xffu;
}

// Byte `place` (0-3) of a word, a signed integer, as FP32: the bits of 2^23 + 128 + the integer are built, and 2^23 + 128 is
// subtracted.
ODMOE_BOTH float float_of_int8(uint32_t word, int place) {
#if defined(__CUDA_ARCH__)
  const uint32_t bits = __byte_perm(word ^ 0x80808080u, 0x4b000000u, 0x7440u | static_cast<unsigned>(place));
#else
  const uint32_t bits = 0x4b000000u | ((word ^ 0x80808080u) >> (8 * place) & 0xffu);
#endif
  return float_of_bits(bits) - 8388736.0f;
}

// Device code may use an array of constants only where it needs no address.
template <int kCode = 0>
ODMOE_BOTH float nf4_value(int code) {
  constexpr float value = kNf4Values[kCode];
  if constexpr (kCode == 15) {
    return value;
  } else {
    return code == kCode ? value : nf4_value<kCode + 1>(code);
  }
}

template <int kMidpoint = 0>
ODMOE_BOTH uint32_t nf4_midpoints_below(float x) {
  constexpr float midpoint = kNf4Midpoints[kMidpoint];
  const uint32_t below = x > midpoint ? 1 : 0;
  if constexpr (kMidpoint == 14) {
    return below;
  } else {
    return below + nf4_midpoints_below<kMidpoint + 1>(x);
  }
}

// 0 / 0 is NaN, which becomes kNf4Zero like every NaN; a zero behind the last column becomes kNf4Zero, too.
ODMOE_BOTH uint32_t nf4_code(float x, float scale) {
  x = divided(x, scale);
  return x == x ? nf4_midpoints_below(x) : static_cast<uint32_t>(kNf4Zero);
}

}  // namespace odmoe::cuda
