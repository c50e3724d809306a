// The codes, steps and bases of GGUF's formats: weight = code * step + base, one fused operation. Product and sum are exact but where
// a minimum is added, and that is the one rounding that arithmetic.h allows. Codes are read as they are shipped (the places of all
// bytes are those of llama.cpp's ggml-quants.c).
#pragma once
#include "kernels_tiles.h"

namespace odmoe::cpu {
namespace {

using Integers = Simd::Integers;

ODMOE_INLINE float half_at(const uint8_t* p) {
  uint16_t half;
  __builtin_memcpy(&half, p, 2);
  return float_of_half(half);
}

ODMOE_INLINE uint32_t word_at(const uint8_t* p) {
  uint32_t word;
  __builtin_memcpy(&word, p, 4);
  return word;
}

ODMOE_INLINE Integers lower_half(Integers bytes) { return Simd::and_bits(bytes, 15); }
ODMOE_INLINE Integers upper_half(Integers bytes) { return Simd::shift_right(bytes, 4); }

// Each format has
//  kColumns, kBytes: of a block
//  kScales: steps of a row's 32 columns: 1, or 2 (one for 16 columns)
//  kBases: bases are added
//  prepare: the steps of a block, in order, and its bases
//  codes: columns W*pair.. and 16 + W*pair.. of 32 columns of a block, as FP32

// Blocks of 32 codes of 4 or 5 bits: kBits is the place of the fifth bits, or 0; the codes' halves begin at kCodes.
template <int kCodes, int kBits>
struct HalfByteCodes {
  static constexpr int kColumns = 32;
  static constexpr int kScales = 1;
  static constexpr int kBytes = kCodes + 16;
  ODMOE_INLINE static void codes(const uint8_t* block, int, int pair, Vector& low, Vector& high) {
    const Integers bytes = Simd::load_bytes(block + kCodes + pair * kWidth);
    Integers low_codes = lower_half(bytes);
    Integers high_codes = upper_half(bytes);
    if constexpr (kBits != 0) {
      const uint32_t bits = word_at(block + kBits) >> (pair * kWidth);
      low_codes = Simd::or_bits(low_codes, Simd::where_set(bits, 16));
      high_codes = Simd::or_bits(high_codes, Simd::where_set(bits >> 16, 16));
    }
    low = Simd::to_floats(low_codes);
    high = Simd::to_floats(high_codes);
  }
};

struct Q4_0 : HalfByteCodes<2, 0> {
  static constexpr bool kBases = true;
  ODMOE_INLINE static void prepare(const uint8_t* block, float* steps, float* bases) {
    steps[0] = half_at(block);
    bases[0] = steps[0] * -8.0f;
  }
};

struct Q4_1 : HalfByteCodes<4, 0> {
  static constexpr bool kBases = true;
  ODMOE_INLINE static void prepare(const uint8_t* block, float* steps, float* bases) {
    steps[0] = half_at(block);
    bases[0] = half_at(block + 2);
  }
};

struct Q5_0 : HalfByteCodes<6, 2> {
  static constexpr bool kBases = true;
  ODMOE_INLINE static void prepare(const uint8_t* block, float* steps, float* bases) {
    steps[0] = half_at(block);
    bases[0] = steps[0] * -16.0f;
  }
};

struct Q5_1 : HalfByteCodes<8, 4> {
  static constexpr bool kBases = true;
  ODMOE_INLINE static void prepare(const uint8_t* block, float* steps, float* bases) {
    steps[0] = half_at(block);
    bases[0] = half_at(block + 2);
  }
};

struct Q8_0 {
  static constexpr int kColumns = 32;
  static constexpr int kBytes = 34;
  static constexpr int kScales = 1;
  static constexpr bool kBases = false;
  ODMOE_INLINE static void prepare(const uint8_t* block, float* steps, float*) { steps[0] = half_at(block); }
  ODMOE_INLINE static void codes(const uint8_t* block, int, int pair, Vector& low, Vector& high) {
    low = Simd::load_int8(block + 2 + pair * kWidth);
    high = Simd::load_int8(block + 18 + pair * kWidth);
  }
};

alignas(64) constexpr float kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

ODMOE_INLINE void look_up_iq4(const uint8_t* codes, Vector& low, Vector& high) {
  const Integers bytes = Simd::load_bytes(codes);
  low = Simd::look_up(kIq4Values, bytes);
  high = Simd::look_up(kIq4Values, upper_half(bytes));
}

struct Iq4Nl {
  static constexpr int kColumns = 32;
  static constexpr int kBytes = 18;
  static constexpr int kScales = 1;
  static constexpr bool kBases = false;
  ODMOE_INLINE static void prepare(const uint8_t* block, float* steps, float*) { steps[0] = half_at(block); }
  ODMOE_INLINE static void codes(const uint8_t* block, int, int pair, Vector& low, Vector& high) {
    look_up_iq4(block + 2 + pair * kWidth, low, high);
  }
};

struct Iq4Xs {
  static constexpr int kColumns = 256;
  static constexpr int kBytes = 136;
  static constexpr int kScales = 1;
  static constexpr bool kBases = false;
  ODMOE_INLINE static void prepare(const uint8_t* block, float* steps, float*) {
    const float scale = half_at(block);
    const uint32_t high = static_cast<uint32_t>(block[2] | block[3] << 8);
    const uint32_t low = word_at(block + 4);
    for (int i = 0; i < 8; ++i) {
      const auto bits = static_cast<int32_t>((low >> (4 * i) & 15) | (high >> (2 * i) & 3) << 4);
      steps[i] = scale * static_cast<float>(bits - 32);
    }
  }
  ODMOE_INLINE static void codes(const uint8_t* block, int group, int pair, Vector& low, Vector& high) {
    look_up_iq4(block + 8 + group * 16 + pair * kWidth, low, high);
  }
};

// Two bits of each of 32 bytes from kCodes on (32 more for the second half of the block).
template <int kCodes>
ODMOE_INLINE void take_two_bits(const uint8_t* block, int group, int pair, Integers& low, Integers& high) {
  const uint8_t* const bytes = block + kCodes + group / 4 * 32 + pair * kWidth;
  const int shift = group % 4 * 2;
  low = Simd::and_bits(Simd::shift_right(Simd::load_bytes(bytes), shift), 3);
  high = Simd::and_bits(Simd::shift_right(Simd::load_bytes(bytes + 16), shift), 3);
}

// Bit `group` of each of 32 bytes, at bit kTo.
template <int kTo>
ODMOE_INLINE void take_one_bit(const uint8_t* bytes, int group, int pair, Integers& low, Integers& high) {
  low = Simd::and_bits(Simd::shift_left(Simd::shift_right(Simd::load_bytes(bytes + pair * kWidth), group), kTo), 1 << kTo);
  high = Simd::and_bits(Simd::shift_left(Simd::shift_right(Simd::load_bytes(bytes + 16 + pair * kWidth), group), kTo), 1 << kTo);
}

struct Q2K {
  static constexpr int kColumns = 256;
  static constexpr int kBytes = 84;
  static constexpr int kScales = 2;
  static constexpr bool kBases = true;
  ODMOE_INLINE static void prepare(const uint8_t* block, float* steps, float* bases) {
    const float scale = half_at(block + 80);
    const float minimum = -half_at(block + 82);
    for (int i = 0; i < 16; ++i) {
      steps[i] = scale * static_cast<float>(block[i] & 15);
      bases[i] = minimum * static_cast<float>(block[i] >> 4);
    }
  }
  ODMOE_INLINE static void codes(const uint8_t* block, int group, int pair, Vector& low, Vector& high) {
    Integers low_codes, high_codes;
    take_two_bits<16>(block, group, pair, low_codes, high_codes);
    low = Simd::to_floats(low_codes);
    high = Simd::to_floats(high_codes);
  }
};

struct Q3K {
  static constexpr int kColumns = 256;
  static constexpr int kBytes = 110;
  static constexpr int kScales = 2;
  static constexpr bool kBases = true;
  ODMOE_INLINE static void prepare(const uint8_t* block, float* steps, float* bases) {
    const float scale = half_at(block + 108);
    const uint8_t* const scales = block + 96;
    for (int i = 0; i < 16; ++i) {
      const int low = scales[i % 8] >> (i / 8 * 4) & 15;
      const int high = scales[8 + i % 4] >> (i / 4 * 2) & 3;
      steps[i] = scale * static_cast<float>((low | high << 4) - 32);
      bases[i] = steps[i] * -4.0f;
    }
  }
  ODMOE_INLINE static void codes(const uint8_t* block, int group, int pair, Vector& low, Vector& high) {
    Integers low_codes, high_codes, low_top, high_top;
    take_two_bits<32>(block, group, pair, low_codes, high_codes);
    take_one_bit<2>(block, group, pair, low_top, high_top);
    low = Simd::to_floats(Simd::or_bits(low_codes, low_top));
    high = Simd::to_floats(Simd::or_bits(high_codes, high_top));
  }
};

// Eight scales and eight minimums of 6 bits, and their two factors.
ODMOE_INLINE void prepare_six_bits(const uint8_t* block, float* steps, float* bases) {
  const float scale = half_at(block);
  const float minimum = -half_at(block + 2);
  const uint32_t first = word_at(block + 4);
  const uint32_t second = word_at(block + 8);
  const uint32_t third = word_at(block + 12);
  const uint32_t scales[2] = {first & 0x3f3f3f3fu, (third & 0x0f0f0f0fu) | (first >> 6 & 0x03030303u) << 4};
  const uint32_t minimums[2] = {second & 0x3f3f3f3fu, (third >> 4 & 0x0f0f0f0fu) | (second >> 6 & 0x03030303u) << 4};
  uint8_t bytes[16];
  __builtin_memcpy(bytes, scales, 8);
  __builtin_memcpy(bytes + 8, minimums, 8);
  for (int i = 0; i < 8; ++i) {
    steps[i] = scale * static_cast<float>(bytes[i]);
    bases[i] = minimum * static_cast<float>(bytes[8 + i]);
  }
}

// Columns of two groups of 32 are the lower and the upper halves of 32 bytes; kBits is the place of the fifth bits, or 0.
template <int kCodes, int kBits>
struct HalfByteGroups {
  static constexpr int kColumns = 256;
  static constexpr int kBytes = kCodes + 128;
  static constexpr int kScales = 1;
  static constexpr bool kBases = true;
  ODMOE_INLINE static void prepare(const uint8_t* block, float* steps, float* bases) { prepare_six_bits(block, steps, bases); }
  ODMOE_INLINE static void codes(const uint8_t* block, int group, int pair, Vector& low, Vector& high) {
    const uint8_t* const bytes = block + kCodes + group / 2 * 32 + pair * kWidth;
    const int shift = group % 2 * 4;
    Integers low_codes = lower_half(Simd::shift_right(Simd::load_bytes(bytes), shift));
    Integers high_codes = lower_half(Simd::shift_right(Simd::load_bytes(bytes + 16), shift));
    if constexpr (kBits != 0) {
      Integers low_top, high_top;
      take_one_bit<4>(block + kBits, group, pair, low_top, high_top);
      low_codes = Simd::or_bits(low_codes, low_top);
      high_codes = Simd::or_bits(high_codes, high_top);
    }
    low = Simd::to_floats(low_codes);
    high = Simd::to_floats(high_codes);
  }
};
using Q4K = HalfByteGroups<16, 0>;
using Q5K = HalfByteGroups<48, 16>;

struct Q6K {
  static constexpr int kColumns = 256;
  static constexpr int kBytes = 210;
  static constexpr int kScales = 2;
  static constexpr bool kBases = true;
  ODMOE_INLINE static void prepare(const uint8_t* block, float* steps, float* bases) {
    const float scale = half_at(block + 208);
    for (int i = 0; i < 16; ++i) {
      steps[i] = scale * static_cast<float>(static_cast<int8_t>(block[192 + i]));
      bases[i] = steps[i] * -32.0f;
    }
  }
  ODMOE_INLINE static void codes(const uint8_t* block, int group, int pair, Vector& low, Vector& high) {
    const uint8_t* const bytes = block + group / 4 * 64 + group % 2 * 32 + pair * kWidth;
    const int shift = group % 4 / 2 * 4;
    const Integers low_codes = lower_half(Simd::shift_right(Simd::load_bytes(bytes), shift));
    const Integers high_codes = lower_half(Simd::shift_right(Simd::load_bytes(bytes + 16), shift));
    Integers low_top, high_top;
    take_two_bits<128>(block, group, pair, low_top, high_top);
    low = Simd::to_floats(Simd::or_bits(low_codes, Simd::shift_left(low_top, 4)));
    high = Simd::to_floats(Simd::or_bits(high_codes, Simd::shift_left(high_top, 4)));
  }
};

}  // namespace
}  // namespace odmoe::cpu
