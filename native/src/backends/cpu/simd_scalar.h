// One lane, for any processor: the C library's fused multiply-add.
#pragma once
#include "kernels_base.h"
#include "odmoe/quantized_values.h"

namespace odmoe::cpu {
namespace {

struct Simd {
  using Vector = float;
  static constexpr const char* kName = "scalar";
  static void leave() {}
  static constexpr int kWidth = 1;
  static constexpr int rows_at_once(int) { return 1; }

  static float zero() { return 0.0f; }
  static float broadcast(float x) { return x; }
  static float load(const float* p) { return *p; }
  static void store(float* p, float v) { *p = v; }
  static void keep_in_register(float&) {}
  static float load_first(const float* p, int64_t count) { return count > 0 ? *p : 0.0f; }
  static void store_first(float* p, float v, int64_t count) {
    if (count > 0) *p = v;
  }

  static float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static float add(float a, float b) { return a + b; }
  static float subtract(float a, float b) { return a - b; }
  static float multiply(float a, float b) { return a * b; }
  static float divide(float a, float b) { return a / b; }
  static float greater(float a, float b) { return a > b ? a : b; }
  static float lesser(float a, float b) { return a < b ? a : b; }
  static float absolute(float x) { return float_of_bits(float_bits(x) & 0x7fffffffu); }
  // The magnitude of x, which is not negative, with the sign of y.
  static float copy_sign(float x, float y) { return float_of_bits(float_bits(x) | (float_bits(y) & 0x80000000u)); }
  // a > b ? x : y.
  static float select_greater(float a, float b, float x, float y) { return a > b ? x : y; }
  // A bit for each lane in which a == b.
  static uint32_t equal_lanes(float a, float b) { return a == b ? 1 : 0; }
  // Loads a pair of neighbours: the even and the odd element.
  static void load_pairs(const float* p, float& even, float& odd) {
    even = p[0];
    odd = p[1];
  }
  static void store_pairs(float* p, float even, float odd) {
    p[0] = even;
    p[1] = odd;
  }

  // x = mantissa * 2^n, the mantissa within [sqrt(1/2), sqrt(2)), for a positive normal x.
  static void split_power(float x, float& n, float& mantissa) {
    const int32_t power = static_cast<int32_t>(float_bits(x) - float_bits(kSqrtHalf)) >> 23;
    n = static_cast<float>(power);
    mantissa = float_of_bits(float_bits(x) - (static_cast<uint32_t>(power) << 23));
  }

  // y * 2^(n >> 1) * 2^(n - (n >> 1)) for the integer n that rounded = kRoundMagic + n holds in its low bits.
  static float scale_by_power(float y, float rounded) {
    // Integers wrap around here, as in vectors, for the bits of a NaN.
    const int32_t n = static_cast<int32_t>(float_bits(rounded) - float_bits(kRoundMagic));
    const int32_t half = n >> 1;
    return y * power_of_two(half) * power_of_two(n - half);
  }

  static void expand_bf16(const uint8_t* p, float& low, float& high) {
    uint32_t word;
    __builtin_memcpy(&word, p, 4);
    low = float_of_bits(word << 16);
    high = float_of_bits(word & 0xffff0000u);
  }
  static float load_fp16(const uint8_t* p) {
    uint16_t half;
    __builtin_memcpy(&half, p, 2);
    return float_of_half(half);
  }
  static float load_int8(const uint8_t* p) { return static_cast<float>(static_cast<int8_t>(*p)); }
  // A byte, shifted to the right, as FP32.
  static float load_uint8(const uint8_t* p, int shift) { return static_cast<float>(*p >> shift); }
  // Codes of 4 bits, and of 2 or 3 bits, as FP32 (odmoe/slices.h).
  static void expand_codes4(const uint8_t* p, float& low, float& high) {
    low = static_cast<float>(*p & 15);
    high = static_cast<float>(*p >> 4);
  }
  static constexpr bool kLooksUpCodes = false;
  template <bool kThree>
  static void expand_codes2(const uint8_t* group, int pair, float& low, float& high) {
    const int byte = group[pair % 8] >> (pair / 8 * 2);
    int low_code = byte & 3;
    int high_code = byte >> 4 & 3;
    if constexpr (kThree) {
      low_code |= (group[8 + pair / 8] >> (pair % 8) & 1) << 2;
      high_code |= (group[10 + pair / 8] >> (pair % 8) & 1) << 2;
    }
    low = static_cast<float>(low_code);
    high = static_cast<float>(high_code);
  }
  static void expand_nf4(const uint8_t* p, float& low, float& high) {
    low = kNf4Values[*p & 15];
    high = kNf4Values[*p >> 4];
  }

  // Joins exponents with signs and mantissas to 32 values, in the order of the bf16 layout.
  static void join_bf16(const uint8_t* exponents, const uint8_t* sign_mantissas, uint8_t* out) {
    for (int i = 0; i < kLanes; ++i) {
      uint8_t* const word = out + i % 16 * 4 + i / 16 * 2;
      word[0] = static_cast<uint8_t>((sign_mantissas[i] & 0x7f) | exponents[i] << 7);
      word[1] = static_cast<uint8_t>((sign_mantissas[i] & 0x80) | exponents[i] >> 1);
    }
  }
  // Fixed4 weights become BF16 before they are multiplied.
  static constexpr int kFixed4Tokens = 0;
  // Expands `count` blocks of a fixed4 tile by its tables to blocks of the bf16 layout; weights with escapes are still wrong.
  template <int64_t kAhead>
  static void expand_fixed4(const uint8_t* tables, const uint8_t* block, int64_t count, uint8_t* bf16) {
    for (const uint8_t* const end = block + count * kFixed4BlockBytes; block != end; block += kFixed4BlockBytes, bf16 += 256) {
      if constexpr (kAhead != 0) {
        for (int line = 0; line < 3; ++line) __builtin_prefetch(block + kAhead + line * 64);
      }
      for (int half = 0; half < 2; ++half) {
        for (int i = 0; i < 64; ++i) {
          const int code = half == 0 ? block[i] & 15 : block[i] >> 4;
          const uint32_t rest = block[kFixed4CodeBytes + half * 64 + i];
          uint8_t* const word = bf16 + (2 * half + (i >> 3 & 1)) * 64 + (i >> 4) * 16 + (i & 7) * 2;
          word[0] = static_cast<uint8_t>((rest & 0x7f) | tables[16 + code]);
          word[1] = static_cast<uint8_t>((rest & 0x80) | tables[code]);
        }
      }
    }
  }

  // 32 weights of an mxfp4 row, in the order of the bf16 layout, from their codes, their scale, and the 16 weights of this scale
  // (low bytes, then high ones).
  static void expand_mxfp4(const uint8_t* codes, float, const uint8_t* weights, uint8_t* bf16) {
    for (int word = 0; word < kLanes; ++word) {
      const int byte = codes[(word & 7) | (word & 16) >> 1];
      const int code = (word & 8) == 0 ? byte & 15 : byte >> 4;
      bf16[2 * word] = weights[code];
      bf16[2 * word + 1] = weights[16 + code];
    }
  }
  static constexpr bool kMxfp4InRegisters = false;
  static constexpr bool kMxfp4RowsTogether = false;
  // The low byte and the high byte of a word of an fp8 row as FP32; the results are 256 times smaller than the values.
  static void expand_fp8(const uint8_t* p, float& low, float& high) {
    low = kE4m3Values.values[p[0]] * 0x1p-8f;
    high = kE4m3Values.values[p[1]] * 0x1p-8f;
  }

  // Integers of 32 bits, for the codes of block formats.
  using Integers = uint32_t;
  static Integers load_bytes(const uint8_t* p) { return *p; }
  static Integers shift_right(Integers v, int count) { return v >> count; }
  static Integers and_bits(Integers v, int bits) { return v & static_cast<uint32_t>(bits); }
  static Integers or_bits(Integers a, Integers b) { return a | b; }
  // `value`, a power of two, if the lowest bit is set.
  static Integers where_set(uint32_t bits, int value) { return (bits & 1) != 0 ? static_cast<uint32_t>(value) : 0; }
  static float to_floats(Integers v) { return static_cast<float>(v); }
  static float look_up(const float* table, Integers codes) { return table[codes & 15]; }
  // Looks up bits 0 to 2 in a table of magnitudes; bit 3 is the sign.
  static float look_up_magnitudes(const float* table, Integers codes) {
    return float_of_bits(float_bits(table[codes & 7]) | (codes & 8) << 28);
  }
  // Two bytes: the one at p, then the one at q.
  using Bytes = uint16_t;
  static Bytes load_two(const uint8_t* p, const uint8_t* q) { return static_cast<Bytes>(*p | *q << 8); }
  // The lower half of a byte, then the upper one.
  static Bytes load_halves(const uint8_t* p) { return static_cast<Bytes>((*p & 15) | *p >> 4 << 8); }
  static Bytes and_bytes(Bytes v, int bits) { return static_cast<Bytes>(v & bits * 257); }
  static Bytes or_bytes(Bytes a, Bytes b) { return static_cast<Bytes>(a | b); }
  // Bits `mask` of the bytes, after they moved to the left by some places (to the right where `places` is negative).
  static Bytes move_bits(Bytes v, int places, int mask) {
    return and_bytes(static_cast<Bytes>(places < 0 ? v >> -places : v << places), mask);
  }
  static void to_floats(Bytes v, float& low, float& high) {
    low = static_cast<float>(v & 255);
    high = static_cast<float>(v >> 8);
  }
  // The integers that the table has for codes of 4 bits.
  static void look_up_integers(const int8_t* table, Bytes codes, float& low, float& high) {
    low = static_cast<float>(table[codes & 15]);
    high = static_cast<float>(table[codes >> 8 & 15]);
  }
  static constexpr bool kWholeRows = false;
  static float half(uint16_t bits) { return float_of_half(bits); }
  static float broadcast_half(uint16_t bits) { return float_of_half(bits); }

  static void fold_rows(const float (&sums)[4][32], float* out) {
    for (int r = 0; r < 4; ++r) out[r] = fold(sums[r]);
  }
  static float fold(const float (&sums)[32]) {
    float tree[32];
    for (int i = 0; i < 32; ++i) tree[i] = sums[i];
    for (int apart = 16; apart > 0; apart /= 2) {
      for (int i = 0; i < apart; ++i) tree[i] = tree[i] + tree[i + apart];
    }
    return tree[0];
  }

 private:
  static float power_of_two(int32_t n) { return float_of_bits((static_cast<uint32_t>(n) + 127u) << 23); }
};

}  // namespace
}  // namespace odmoe::cpu
