// The vectors of NEON (aarch64).
#pragma once
#include <arm_neon.h>

#include "kernels_base.h"

namespace odmoe::cpu {
namespace {

struct Simd {
  using Vector = float32x4_t;
  static constexpr const char* kName = "neon";
  static void leave() {}
  static constexpr int kWidth = 4;
  // Rows of a tile whose sums fit the 32 registers together with `tokens` tokens.
  static constexpr int rows_at_once(int tokens) { return tokens <= 3 ? kTileRows : 2; }

  static Vector zero() { return vdupq_n_f32(0.0f); }
  static Vector broadcast(float x) { return vdupq_n_f32(x); }
  static Vector load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, Vector v) { vst1q_f32(p, v); }
  static void keep_in_register(Vector& v) { asm("" : "+w"(v)); }
  static Vector load_first(const float* p, int64_t count) {
    float lanes[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
    return vld1q_f32(lanes);
  }
  static void store_first(float* p, Vector v, int64_t count) {
    float lanes[4];
    vst1q_f32(lanes, v);
    for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
  }

  static Vector fma(Vector a, Vector b, Vector c) { return vfmaq_f32(c, a, b); }
  static Vector add(Vector a, Vector b) { return vaddq_f32(a, b); }
  static Vector subtract(Vector a, Vector b) { return vsubq_f32(a, b); }
  static Vector multiply(Vector a, Vector b) { return vmulq_f32(a, b); }
  static Vector divide(Vector a, Vector b) { return vdivq_f32(a, b); }
  // a > b ? a : b, and a < b ? a : b: b when either is NaN (FMAX and FMIN would return NaN).
  static Vector greater(Vector a, Vector b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static Vector lesser(Vector a, Vector b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  static Vector absolute(Vector x) { return vabsq_f32(x); }
  // The magnitude of x, which is not negative, with the sign of y.
  static Vector copy_sign(Vector x, Vector y) { return vbslq_f32(vdupq_n_u32(0x80000000u), y, x); }
  // a > b ? x : y.
  static Vector select_greater(Vector a, Vector b, Vector x, Vector y) { return vbslq_f32(vcgtq_f32(a, b), x, y); }
  // A bit for each lane in which a == b.
  static uint32_t equal_lanes(Vector a, Vector b) {
    const uint32x4_t bits = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(vceqq_f32(a, b), bits));
  }
  // Loads pairs of neighbours: the even and the odd elements.
  static void load_pairs(const float* p, Vector& even, Vector& odd) {
    const float32x4x2_t both = vld2q_f32(p);
    even = both.val[0];
    odd = both.val[1];
  }
  static void store_pairs(float* p, Vector even, Vector odd) { vst2q_f32(p, float32x4x2_t{{even, odd}}); }

  // x = mantissa * 2^n, the mantissa within [sqrt(1/2), sqrt(2)), for positive normal x.
  static void split_power(Vector x, Vector& n, Vector& mantissa) {
    const int32x4_t bits = vreinterpretq_s32_f32(x);
    const int32x4_t power = vshrq_n_s32(vsubq_s32(bits, vreinterpretq_s32_f32(broadcast(kSqrtHalf))), 23);
    n = vcvtq_f32_s32(power);
    mantissa = vreinterpretq_f32_s32(vsubq_s32(bits, vshlq_n_s32(power, 23)));
  }

  // y * 2^(n >> 1) * 2^(n - (n >> 1)) for the integer n that rounded = kRoundMagic + n holds in its low bits.
  static Vector scale_by_power(Vector y, Vector rounded) {
    const int32x4_t n = vsubq_s32(vreinterpretq_s32_f32(rounded), vreinterpretq_s32_f32(broadcast(kRoundMagic)));
    const int32x4_t half = vshrq_n_s32(n, 1);
    return vmulq_f32(vmulq_f32(y, power_of_two(half)), power_of_two(vsubq_s32(n, half)));
  }

  static void expand_bf16(const uint8_t* p, Vector& low, Vector& high) {
    const uint32x4_t words = vreinterpretq_u32_u8(vld1q_u8(p));
    low = vreinterpretq_f32_u32(vshlq_n_u32(words, 16));
    high = vreinterpretq_f32_u32(vandq_u32(words, vdupq_n_u32(0xffff0000u)));
  }
  static Vector load_fp16(const uint8_t* p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
  static Vector load_int8(const uint8_t* p) {
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(four_bytes(p))))));
  }
  // Bytes, shifted to the right, as FP32.
  static Vector load_uint8(const uint8_t* p, int shift) {
    const uint32x4_t bytes = vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(four_bytes(p)))));
    return vcvtq_f32_u32(vshlq_u32(bytes, vdupq_n_s32(-shift)));
  }
  // Codes of 4 bits, and of 2 or 3 bits, as FP32 (odmoe/slices.h).
  static void expand_codes4(const uint8_t* p, Vector& low, Vector& high) {
    const uint32x4_t codes = vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(four_bytes(p)))));
    low = vcvtq_f32_u32(vandq_u32(codes, vdupq_n_u32(15)));
    high = vcvtq_f32_u32(vshrq_n_u32(codes, 4));
  }
  static constexpr bool kLooksUpCodes = false;
  template <bool kThree>
  static void expand_codes2(const uint8_t* group, int pair, Vector& low, Vector& high) {
    const uint32x4_t bytes = vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(four_bytes(group + pair % 2 * 4)))));
    const uint32x4_t turned = vshlq_u32(bytes, vdupq_n_s32(-(pair / 2 * 2)));
    uint32x4_t low_codes = vandq_u32(turned, vdupq_n_u32(3));
    uint32x4_t high_codes = vandq_u32(vshrq_n_u32(turned, 4), vdupq_n_u32(3));
    if constexpr (kThree) {
      uint32_t top;
      __builtin_memcpy(&top, group + 8, 4);
      low_codes = vorrq_u32(low_codes, top_bits(top >> (4 * pair)));
      high_codes = vorrq_u32(high_codes, top_bits(top >> (16 + 4 * pair)));
    }
    low = vcvtq_f32_u32(low_codes);
    high = vcvtq_f32_u32(high_codes);
  }
  static void expand_nf4(const uint8_t* p, Vector& low, Vector& high) {
    const uint16x8_t halves = vmovl_u8(vreinterpret_u8_u32(four_bytes(p)));
    const uint32x4_t codes = vmovl_u16(vget_low_u16(halves));
    low = nf4_values(vandq_u32(codes, vdupq_n_u32(15)));
    high = nf4_values(vshrq_n_u32(codes, 4));
  }

  // Joins exponents with signs and mantissas to 32 values, in the order of the bf16 layout.
  static void join_bf16(const uint8_t* exponents, const uint8_t* sign_mantissas, uint8_t* out) {
    uint8x16x4_t bytes;
    for (int half = 0; half < 2; ++half) {
      const uint8x16_t exponent = vld1q_u8(exponents + 16 * half);
      const uint8x16_t rest = vld1q_u8(sign_mantissas + 16 * half);
      bytes.val[2 * half] = vsliq_n_u8(rest, exponent, 7);
      bytes.val[2 * half + 1] = vbslq_u8(vdupq_n_u8(0x80), rest, vshrq_n_u8(exponent, 1));
    }
    vst4q_u8(out, bytes);
  }
  // Expands `count` blocks of a fixed4 tile by its tables to blocks of the bf16 layout; weights with escapes are still wrong.
  template <int64_t kAhead>
  static void expand_fixed4(const uint8_t* tables, const uint8_t* block, int64_t count, uint8_t* bf16) {
    const uint8x16_t high_table = vld1q_u8(tables);
    const uint8x16_t low_table = vld1q_u8(tables + 16);
    for (const uint8_t* const end = block + count * kFixed4BlockBytes; block != end; block += kFixed4BlockBytes, bf16 += 256) {
      if constexpr (kAhead != 0) {
        for (int line = 0; line < 3; ++line) __builtin_prefetch(block + kAhead + line * 64);
      }
      for (int part = 0; part < 64; part += 16) {
        const uint8x16_t codes = vld1q_u8(block + part);
        for (int half = 0; half < 2; ++half) {
          const uint8x16_t index = half == 0 ? vandq_u8(codes, vdupq_n_u8(15)) : vshrq_n_u8(codes, 4);
          const uint8x16_t rest = vld1q_u8(block + kFixed4CodeBytes + half * 64 + part);
          const uint8x16_t high = vbslq_u8(vdupq_n_u8(0x80), rest, vqtbl1q_u8(high_table, index));
          const uint8x16_t low = vbslq_u8(vdupq_n_u8(0x7f), rest, vqtbl1q_u8(low_table, index));
          uint8_t* const rows = bf16 + half * 128 + part;
          vst1q_u8(rows, vzip1q_u8(low, high));
          vst1q_u8(rows + 64, vzip2q_u8(low, high));
        }
      }
    }
  }

  // Most tokens that fixed4 weights multiply as they stream in from memory, and rows whose sums then fit the registers beside the
  // tables.
  static constexpr int kFixed4Tokens = 6;
  static constexpr int fixed4_rows_at_once(int tokens) { return tokens <= 2 ? kTileRows : 2; }
  struct Fixed4Tables {
    uint8x16_t high;
    uint8x16_t low;
  };
  static Fixed4Tables load_fixed4_tables(const uint8_t* tables) { return {vld1q_u8(tables), vld1q_u8(tables + 16)}; }
  // Columns W*pair.. and 16 + W*pair.. of two rows of a block, of its first half or its second, as FP32.
  static void expand_fixed4_rows(const Fixed4Tables& tables, const uint8_t* codes, const uint8_t* rest, int half, Vector (&low)[2],
                                 Vector (&high)[2]) {
    const uint8x16_t both = vld1q_u8(codes);
    const uint8x16_t index = half == 0 ? vandq_u8(both, vdupq_n_u8(15)) : vshrq_n_u8(both, 4);
    const uint8x16_t others = vld1q_u8(rest);
    const uint8x16_t upper = vbslq_u8(vdupq_n_u8(0x80), others, vqtbl1q_u8(tables.high, index));
    const uint8x16_t lower = vbslq_u8(vdupq_n_u8(0x7f), others, vqtbl1q_u8(tables.low, index));
    const uint32x4_t words[2] = {vreinterpretq_u32_u8(vzip1q_u8(lower, upper)), vreinterpretq_u32_u8(vzip2q_u8(lower, upper))};
    for (int r = 0; r < 2; ++r) {
      low[r] = vreinterpretq_f32_u32(vshlq_n_u32(words[r], 16));
      high[r] = vreinterpretq_f32_u32(vandq_u32(words[r], vdupq_n_u32(0xffff0000u)));
    }
  }

  // 32 weights of an mxfp4 row, in the order of the bf16 layout, from their codes, their scale, and the 16 weights of this scale
  // (low bytes, then high ones).
  static void expand_mxfp4(const uint8_t* codes, float, const uint8_t* weights, uint8_t* bf16) {
    const uint8x16_t bytes = vld1q_u8(codes);
    const uint8x16_t low_table = vld1q_u8(weights);
    const uint8x16_t high_table = vld1q_u8(weights + 16);
    for (int half = 0; half < 2; ++half) {
      const uint8x16_t index = half == 0 ? vandq_u8(bytes, vdupq_n_u8(15)) : vshrq_n_u8(bytes, 4);
      const uint8x16_t low = vqtbl1q_u8(low_table, index);
      const uint8x16_t high = vqtbl1q_u8(high_table, index);
      vst1q_u8(bf16 + 16 * half, vzip1q_u8(low, high));
      vst1q_u8(bf16 + 32 + 16 * half, vzip2q_u8(low, high));
    }
  }
  static constexpr bool kMxfp4InRegisters = false;
  static constexpr bool kMxfp4RowsTogether = false;
  // The low bytes and the high bytes of W words of an fp8 row as FP32; the results are 256 times smaller than the values.
  static void expand_fp8(const uint8_t* p, Vector& low, Vector& high) {
    const int16x4_t words = vreinterpret_s16_u8(vld1_u8(p));
    low = half_of_fp8(vshl_n_s16(words, 8));
    high = half_of_fp8(words);
  }

  // Integers of 32 bits, for the codes of block formats.
  using Integers = uint32x4_t;
  static Integers load_bytes(const uint8_t* p) { return vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(four_bytes(p))))); }
  static Integers shift_right(Integers v, int count) { return vshlq_u32(v, vdupq_n_s32(-count)); }
  static Integers and_bits(Integers v, int bits) { return vandq_u32(v, vdupq_n_u32(static_cast<uint32_t>(bits))); }
  static Integers or_bits(Integers a, Integers b) { return vorrq_u32(a, b); }
  // `value`, a power of two, in each lane whose bit is set.
  static Integers where_set(uint32_t bits, int value) {
    const uint32_t places[4] = {1, 2, 4, 8};
    return vandq_u32(vtstq_u32(vdupq_n_u32(bits), vld1q_u32(places)), vdupq_n_u32(static_cast<uint32_t>(value)));
  }
  static Vector to_floats(Integers v) { return vcvtq_f32_u32(v); }
  // Looks up bits 0 to 2 in a table of magnitudes; bit 3 is the sign.
  static Vector look_up_magnitudes(const float* floats, Integers codes) {
    const uint8_t* table = reinterpret_cast<const uint8_t*>(floats);
    const uint8x16x2_t bytes = {{vld1q_u8(table), vld1q_u8(table + 16)}};
    const uint32x4_t low = vandq_u32(codes, vdupq_n_u32(7));
    const uint32x4_t at = vaddq_u32(vmulq_n_u32(low, 0x04040404u), vdupq_n_u32(0x03020100u));
    const uint32x4_t magnitudes = vreinterpretq_u32_u8(vqtbl2q_u8(bytes, vreinterpretq_u8_u32(at)));
    return vreinterpretq_f32_u32(vorrq_u32(magnitudes, vshlq_n_u32(vandq_u32(codes, vdupq_n_u32(8)), 28)));
  }
  // 2 W bytes: those from p on, then those from q on.
  using Bytes = uint8x8_t;
  static Bytes load_two(const uint8_t* p, const uint8_t* q) {
    return vreinterpret_u8_u32(vset_lane_u32(vget_lane_u32(four_bytes(q), 0), four_bytes(p), 1));
  }
  // The lower halves of W bytes, then the upper ones.
  static Bytes load_halves(const uint8_t* p) {
    const uint8x8_t bytes = vreinterpret_u8_u32(four_bytes(p));
    return vreinterpret_u8_u32(vzip1_u32(vreinterpret_u32_u8(and_bytes(bytes, 15)), vreinterpret_u32_u8(vshr_n_u8(bytes, 4))));
  }
  static Bytes and_bytes(Bytes v, int bits) { return vand_u8(v, vdup_n_u8(static_cast<uint8_t>(bits))); }
  static Bytes or_bytes(Bytes a, Bytes b) { return vorr_u8(a, b); }
  // Bits `mask` of the bytes, after they moved to the left by some places (to the right where `places` is negative).
  static Bytes move_bits(Bytes v, int places, int mask) {
    return and_bytes(vshl_u8(v, vdup_n_s8(static_cast<int8_t>(places))), mask);
  }
  static void to_floats(Bytes v, Vector& low, Vector& high) {
    const uint16x8_t words = vmovl_u8(v);
    low = vcvtq_f32_u32(vmovl_u16(vget_low_u16(words)));
    high = vcvtq_f32_u32(vmovl_u16(vget_high_u16(words)));
  }
  // The integers that the table has for codes of 4 bits.
  static void look_up_integers(const int8_t* table, Bytes codes, Vector& low, Vector& high) {
    const int16x8_t words = vmovl_s8(vqtbl1_s8(vld1q_s8(table), codes));
    low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(words)));
    high = vcvtq_f32_s32(vmovl_s16(vget_high_s16(words)));
  }
  static constexpr bool kWholeRows = false;
  static float half(uint16_t bits) { return vgetq_lane_f32(broadcast_half(bits), 0); }
  static Vector broadcast_half(uint16_t bits) { return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))); }

  // Folds the 32 partial sums of each of four rows by the binary tree.
  static void fold_rows(const Vector (&sums)[4][8], float* out) {
    for (int r = 0; r < 4; ++r) out[r] = fold(sums[r]);
  }
  static float fold(const Vector (&sums)[8]) {
    const Vector low = vaddq_f32(vaddq_f32(sums[0], sums[4]), vaddq_f32(sums[2], sums[6]));
    const Vector high = vaddq_f32(vaddq_f32(sums[1], sums[5]), vaddq_f32(sums[3], sums[7]));
    const Vector by4 = vaddq_f32(low, high);
    const float32x2_t by2 = vadd_f32(vget_low_f32(by4), vget_high_f32(by4));
    return vget_lane_f32(by2, 0) + vget_lane_f32(by2, 1);
  }

 private:
  // Reads E4M3 values in the upper bytes of words as FP16.
  static Vector half_of_fp8(int16x4_t words) {
    const uint16x4_t half = vand_u16(vreinterpret_u16_s16(vshr_n_s16(words, 1)), vdup_n_u16(0xbf80));
    return vcvt_f32_f16(vreinterpret_f16_u16(half));
  }
  static Vector power_of_two(int32x4_t n) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23)); }
  static uint32x2_t four_bytes(const uint8_t* p) {
    uint32_t word;
    __builtin_memcpy(&word, p, 4);
    return vdup_n_u32(word);
  }
  // 4 in each lane whose bit is set.
  static uint32x4_t top_bits(uint32_t bits) {
    const int32_t shifts[4] = {31, 30, 29, 28};
    return vshlq_n_u32(vshrq_n_u32(vshlq_u32(vdupq_n_u32(bits), vld1q_s32(shifts)), 31), 2);
  }
  // Looks up each value as four bytes of the 64-byte table.
  static Vector nf4_values(uint32x4_t codes) {
    const uint8_t* table = reinterpret_cast<const uint8_t*>(kNf4Values);
    const uint8x16x4_t bytes = {{vld1q_u8(table), vld1q_u8(table + 16), vld1q_u8(table + 32), vld1q_u8(table + 48)}};
    const uint32x4_t at = vaddq_u32(vmulq_n_u32(codes, 0x04040404u), vdupq_n_u32(0x03020100u));
    return vreinterpretq_f32_u8(vqtbl4q_u8(bytes, vreinterpretq_u8_u32(at)));
  }
};

}  // namespace
}  // namespace odmoe::cpu
