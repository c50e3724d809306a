// The codes, steps and bases of GGUF's formats: weight = code * step + base, one fused operation. Product and sum are exact but where
// a minimum is added, and that is the one rounding that arithmetic.h allows. Codes are read as they are shipped (the places of all
// bytes are those of llama.cpp's ggml-quants.c).
#pragma once
#include "kernels_tiles.h"

namespace odmoe::cpu {
namespace {

using Integers = Simd::Integers;
using Bytes = Simd::Bytes;

ODMOE_INLINE float half_at(const uint8_t* p) {
  uint16_t half;
  __builtin_memcpy(&half, p, 2);
  return Simd::half(half);
}

ODMOE_INLINE Vector broadcast_half_at(const uint8_t* p) {
  uint16_t half;
  __builtin_memcpy(&half, p, 2);
  return Simd::broadcast_half(half);
}

ODMOE_INLINE Vector opposite(Vector v) { return Simd::subtract(Simd::broadcast(-0.0f), v); }

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
//  row_codes: all 32 codes, for instruction sets that read a row's 32 bytes together (kWholeRows). Formats that have it describe both
//      by code_bytes, whose `load` reads the wanted ones of 32 bytes
//  kMiddle: row_codes gives the codes less this, and there are no bases
//  row_weights: all 32 weights, where the instruction set looks up those of codes of 4 bits
//  kHalves: place of codes of 4 bits alone, columns 0 to 15 in the lower halves of 16 bytes; 0: there are none

// Blocks of 32 codes of 4 or 5 bits: kBits is the place of the fifth bits, or 0; the codes' halves begin at kCodes.
template <int kCodes, int kBits>
struct HalfByteCodes {
  static constexpr int kColumns = 32;
  static constexpr int kScales = 1;
  static constexpr int kBytes = kCodes + 16;
  static constexpr int kHalves = kBits == 0 ? kCodes : 0;
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
  // Codes of 4 bits are no faster by rows.
  template <class Set>
  requires(kBits != 0) ODMOE_INLINE static void row_codes(const uint8_t* block, int, Vector (&values)[kVectors]) {
    const auto row = Set::load_halves_row(block + kCodes);
    Set::to_floats(Set::or_bytes(row, Set::row_where_set(word_at(block + kBits), 16)), values);
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

alignas(16) constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// The same integers as BF16: their low bytes, then their high ones.
struct Bf16Bytes {
  uint8_t bytes[32];
};
constexpr Bf16Bytes make_iq4_bytes() {
  Bf16Bytes table{};
  for (int code = 0; code < 16; ++code) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, static_cast<float>(kIq4Values[code]));
    table.bytes[code] = static_cast<uint8_t>(bits >> 16);
    table.bytes[16 + code] = static_cast<uint8_t>(bits >> 24);
  }
  return table;
}
alignas(32) constexpr Bf16Bytes kIq4Bytes = make_iq4_bytes();

ODMOE_INLINE void look_up_iq4(const uint8_t* codes, Vector& low, Vector& high) {
  Simd::look_up_integers(kIq4Values, Simd::load_halves(codes), low, high);
}

// Writes (byte - kOffset) * factor for each of eight bytes. Where a vector is wider than they, the bytes do not go through memory: a
// load that is wider than the stores before it waits until these are done.
template <int kOffset, class Set = Simd>
ODMOE_INLINE void scale_eight(uint64_t eight, Vector factor, float* out) {
  if constexpr (kWidth > 8) {
    Set::template scale_eight<kOffset>(eight, factor, out);
  } else {
    uint8_t bytes[8];
    __builtin_memcpy(bytes, &eight, sizeof bytes);
    for (int i = 0; i < 8; i += kWidth) {
      Vector values = Simd::load_uint8(bytes + i, 0);
      if constexpr (kOffset != 0) values = Simd::subtract(values, Simd::broadcast(static_cast<float>(kOffset)));
      Simd::store(out + i, Simd::multiply(values, factor));
    }
  }
}

// Spreads groups of four bits over the bytes.
ODMOE_INLINE uint64_t spread_four_bits(uint64_t bits) {
  bits = (bits | bits << 16) & 0x0000ffff0000ffffu;
  bits = (bits | bits << 8) & 0x00ff00ff00ff00ffu;
  return (bits | bits << 4) & 0x0f0f0f0f0f0f0f0fu;
}
ODMOE_INLINE uint64_t spread_two_bits(uint64_t bits) {
  bits = (bits | bits << 24) & 0x000000ff000000ffu;
  bits = (bits | bits << 12) & 0x000f000f000f000fu;
  return (bits | bits << 6) & 0x0303030303030303u;
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
  template <class Set>
  ODMOE_INLINE static void row_codes(const uint8_t* block, int, Vector (&values)[kVectors]) {
    Set::look_up_row(kIq4Bytes.bytes, block + 2, values);
  }
};

struct Iq4Xs {
  static constexpr int kColumns = 256;
  static constexpr int kBytes = 136;
  static constexpr int kScales = 1;
  static constexpr bool kBases = false;
  ODMOE_INLINE static void prepare(const uint8_t* block, float* steps, float*) {
    const auto high = static_cast<uint64_t>(block[2] | block[3] << 8);
    const uint64_t scales = spread_four_bits(word_at(block + 4)) | spread_two_bits(high) << 4;
    scale_eight<32>(scales, broadcast_half_at(block), steps);
  }
  ODMOE_INLINE static void codes(const uint8_t* block, int group, int pair, Vector& low, Vector& high) {
    look_up_iq4(block + 8 + group * 16 + pair * kWidth, low, high);
  }
  template <class Set>
  ODMOE_INLINE static void row_codes(const uint8_t* block, int group, Vector (&values)[kVectors]) {
    Set::look_up_row(kIq4Bytes.bytes, block + 8 + group * 16, values);
  }
};

// Columns W*pair.. and 16 + W*pair.. of 32 bytes.
ODMOE_INLINE Bytes load_columns(const uint8_t* bytes, int pair) {
  return Simd::load_two(bytes + pair * kWidth, bytes + 16 + pair * kWidth);
}

// Two bits of each of 32 bytes from kCodes on (32 more for the second half of the block).
template <int kCodes, class Load>
ODMOE_INLINE auto take_two_bits(const uint8_t* block, int group, const Load& load) {
  return Simd::move_bits(load(block + kCodes + group / 4 * 32), -(group % 4 * 2), 3);
}

template <class F>
ODMOE_INLINE void codes_of_bytes(const uint8_t* block, int group, int pair, Vector& low, Vector& high) {
  Simd::to_floats(F::code_bytes(block, group, [pair](const uint8_t* bytes) { return load_columns(bytes, pair); }), low, high);
}

template <class F, class Set>
ODMOE_INLINE void row_codes_of_bytes(const uint8_t* block, int group, Vector (&values)[kVectors]) {
  Set::to_floats(F::code_bytes(block, group, [](const uint8_t* bytes) { return Set::load_row(bytes); }), values);
}

// The codes less their middle; then the step is signed_step(), and there are no bases.
template <class F, class Set>
ODMOE_INLINE void row_codes_of_signed_bytes(const uint8_t* block, int group, Vector (&values)[kVectors]) {
  const auto bytes = F::code_bytes(block, group, [](const uint8_t* from) { return Set::load_row(from); });
  Set::to_signed_floats(Set::subtract_bytes(bytes, F::kMiddle), values);
}

template <class Set>
ODMOE_INLINE Vector signed_step(Vector step) {
  if constexpr (Set::kWholeRows) return Set::multiply(step, Set::broadcast(1.0f / Set::kSignedUnit));
  return step;
}

struct Q2K {
  static constexpr int kColumns = 256;
  static constexpr int kBytes = 84;
  static constexpr int kScales = 2;
  static constexpr bool kBases = true;
  ODMOE_INLINE static void prepare(const uint8_t* block, float* steps, float* bases) {
    const Vector scale = broadcast_half_at(block + 80);
    const Vector minimum = opposite(broadcast_half_at(block + 82));
    for (int i = 0; i < 16; i += kWidth) {
      const Integers bytes = Simd::load_bytes(block + i);
      Simd::store(steps + i, Simd::multiply(scale, Simd::to_floats(lower_half(bytes))));
      Simd::store(bases + i, Simd::multiply(minimum, Simd::to_floats(upper_half(bytes))));
    }
  }
  template <class Load>
  ODMOE_INLINE static auto code_bytes(const uint8_t* block, int group, const Load& load) {
    return take_two_bits<16>(block, group, load);
  }
  ODMOE_INLINE static void codes(const uint8_t* block, int group, int pair, Vector& low, Vector& high) {
    codes_of_bytes<Q2K>(block, group, pair, low, high);
  }
  template <class Set>
  ODMOE_INLINE static void row_codes(const uint8_t* block, int group, Vector (&values)[kVectors]) {
    row_codes_of_bytes<Q2K, Set>(block, group, values);
  }
};

struct Q3K {
  static constexpr int kColumns = 256;
  static constexpr int kBytes = 110;
  static constexpr int kScales = 2;
  static constexpr bool kBases = !Simd::kWholeRows;
  static constexpr int kMiddle = 4;
  ODMOE_INLINE static void prepare(const uint8_t* block, float* steps, float* bases) {
    const uint32_t low[2] = {word_at(block + 96), word_at(block + 100)};
    const uint32_t high = word_at(block + 104);
    const Vector factor = signed_step<Simd>(broadcast_half_at(block + 108));
    for (int i = 0; i < 2; ++i) {
      const uint64_t first = (low[0] >> (i * 4) & 0x0f0f0f0fu) | (high >> (4 * i) & 0x03030303u) << 4;
      const uint64_t second = (low[1] >> (i * 4) & 0x0f0f0f0fu) | (high >> (4 * i + 2) & 0x03030303u) << 4;
      scale_eight<32>(first | second << 32, factor, steps + 8 * i);
    }
    if constexpr (!kBases) return;
    for (int i = 0; i < 16; i += kWidth) Simd::store(bases + i, Simd::multiply(Simd::load(steps + i), Simd::broadcast(-4.0f)));
  }
  template <class Load>
  ODMOE_INLINE static auto code_bytes(const uint8_t* block, int group, const Load& load) {
    return Simd::or_bytes(take_two_bits<32>(block, group, load), Simd::move_bits(load(block), 2 - group, 4));
  }
  ODMOE_INLINE static void codes(const uint8_t* block, int group, int pair, Vector& low, Vector& high) {
    codes_of_bytes<Q3K>(block, group, pair, low, high);
  }
  template <class Set>
  ODMOE_INLINE static void row_codes(const uint8_t* block, int group, Vector (&values)[kVectors]) {
    row_codes_of_signed_bytes<Q3K, Set>(block, group, values);
  }
};

// Eight scales and eight minimums of 6 bits, and their two factors.
ODMOE_INLINE void prepare_six_bits(const uint8_t* block, float* steps, float* bases) {
  // The lower six bits of four bytes belong to the first four scales; four bytes for the minimums follow. Of the others, the upper
  // bits stand above these, and the lower ones together in four bytes more.
  const uint64_t first = word_at(block + 4) | static_cast<uint64_t>(word_at(block + 8)) << 32;
  const uint64_t third = word_at(block + 12);
  const uint64_t begin = first & 0x3f3f3f3f3f3f3f3fu;
  const uint64_t end = (first >> 2 & 0x3030303030303030u) | ((third | third << 28) & 0x0f0f0f0f0f0f0f0fu);
  scale_eight<0>((begin & 0xffffffffu) | end << 32, broadcast_half_at(block), steps);
  scale_eight<0>(begin >> 32 | (end & 0xffffffff00000000u), opposite(broadcast_half_at(block + 2)), bases);
}

// Columns of two groups of 32 are the lower and the upper halves of 32 bytes; kBits is the place of the fifth bits, or 0.
template <int kCodes, int kBits>
struct HalfByteGroups {
  static constexpr int kColumns = 256;
  static constexpr int kBytes = kCodes + 128;
  static constexpr int kScales = 1;
  static constexpr bool kBases = true;
  ODMOE_INLINE static void prepare(const uint8_t* block, float* steps, float* bases) { prepare_six_bits(block, steps, bases); }
  template <class Load>
  ODMOE_INLINE static auto code_bytes(const uint8_t* block, int group, const Load& load) {
    const auto bytes = load(block + kCodes + group / 2 * 32);
    const auto codes = Simd::move_bits(bytes, -(group % 2 * 4), 15);
    if constexpr (kBits == 0) {
      return codes;
    } else {
      return Simd::or_bytes(codes, Simd::move_bits(load(block + kBits), 4 - group, 16));
    }
  }
  ODMOE_INLINE static void codes(const uint8_t* block, int group, int pair, Vector& low, Vector& high) {
    codes_of_bytes<HalfByteGroups>(block, group, pair, low, high);
  }
  template <class Set>
  ODMOE_INLINE static void row_codes(const uint8_t* block, int group, Vector (&values)[kVectors]) {
    row_codes_of_bytes<HalfByteGroups, Set>(block, group, values);
  }
  template <class Set>
  requires(kBits == 0 && Set::kLooksUpCodes) ODMOE_INLINE
      static void row_weights(const uint8_t* block, int group, Vector step, Vector base, Vector (&values)[kVectors]) {
    const uint8_t* const bytes = block + kCodes + group / 2 * 32;
    if (group % 2 == 0) return Set::template look_up_halves<false>(bytes, step, base, values);
    Set::template look_up_halves<true>(bytes, step, base, values);
  }
};
using Q4K = HalfByteGroups<16, 0>;
using Q5K = HalfByteGroups<48, 16>;

struct Q6K {
  static constexpr int kColumns = 256;
  static constexpr int kBytes = 210;
  static constexpr int kScales = 2;
  static constexpr bool kBases = !Simd::kWholeRows;
  static constexpr int kMiddle = 32;
  ODMOE_INLINE static void prepare(const uint8_t* block, float* steps, float* bases) {
    const Vector scale = signed_step<Simd>(broadcast_half_at(block + 208));
    for (int i = 0; i < 16; i += kWidth) {
      const Vector step = Simd::multiply(scale, Simd::load_int8(block + 192 + i));
      Simd::store(steps + i, step);
      if constexpr (kBases) Simd::store(bases + i, Simd::multiply(step, Simd::broadcast(-32.0f)));
    }
  }
  template <class Load>
  ODMOE_INLINE static auto code_bytes(const uint8_t* block, int group, const Load& load) {
    const auto bytes = load(block + group / 4 * 64 + group % 2 * 32);
    const auto codes = Simd::move_bits(bytes, -(group % 4 / 2 * 4), 15);
    return Simd::or_bytes(codes, Simd::move_bits(load(block + 128 + group / 4 * 32), 4 - group % 4 * 2, 48));
  }
  ODMOE_INLINE static void codes(const uint8_t* block, int group, int pair, Vector& low, Vector& high) {
    codes_of_bytes<Q6K>(block, group, pair, low, high);
  }
  template <class Set>
  ODMOE_INLINE static void row_codes(const uint8_t* block, int group, Vector (&values)[kVectors]) {
    row_codes_of_signed_bytes<Q6K, Set>(block, group, values);
  }
};

}  // namespace
}  // namespace odmoe::cpu
