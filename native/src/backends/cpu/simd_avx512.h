// The vectors of AVX-512 (F, BW, VL, DQ).
#pragma once
#include <immintrin.h>

#include "kernels_base.h"

namespace odmoe::cpu {
namespace {

struct Simd {
  using Vector = __m512;
  static constexpr const char* kName = "avx512";
  // As in simd_avx2.h.
  static void leave() { _mm256_zeroupper(); }
  static constexpr int kWidth = 16;
  // Rows of a tile whose sums fit the registers together with `tokens` tokens.
  static constexpr int rows_at_once(int tokens) { return tokens <= 3 ? kTileRows : 2; }

  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector broadcast(float x) { return _mm512_set1_ps(x); }
  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static void keep_in_register(Vector& v) { asm("" : "+v"(v)); }
  static __mmask16 first(int64_t count) { return static_cast<__mmask16>((1u << count) - 1u); }
  static Vector load_first(const float* p, int64_t count) { return _mm512_maskz_loadu_ps(first(count), p); }
  static void store_first(float* p, Vector v, int64_t count) { _mm512_mask_storeu_ps(p, first(count), v); }

  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  static Vector subtract(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
  static Vector multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  static Vector divide(Vector a, Vector b) { return _mm512_div_ps(a, b); }
  // a > b ? a : b, and a < b ? a : b: b when either is NaN.
  static Vector greater(Vector a, Vector b) { return _mm512_max_ps(a, b); }
  static Vector lesser(Vector a, Vector b) { return _mm512_min_ps(a, b); }
  static Vector absolute(Vector x) { return _mm512_and_ps(x, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fffffff))); }
  // The magnitude of x, which is not negative, with the sign of y.
  static Vector copy_sign(Vector x, Vector y) { return _mm512_or_ps(x, _mm512_and_ps(y, broadcast(-0.0f))); }
  // a > b ? x : y.
  static Vector select_greater(Vector a, Vector b, Vector x, Vector y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), y, x);
  }
  // A bit for each lane in which a == b.
  static uint32_t equal_lanes(Vector a, Vector b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  // Loads pairs of neighbours: the even and the odd elements.
  static void load_pairs(const float* p, Vector& even, Vector& odd) {
    const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const Vector low = load(p);
    const Vector high = load(p + 16);
    even = _mm512_permutex2var_ps(low, evens, high);
    odd = _mm512_permutex2var_ps(low, _mm512_or_si512(evens, _mm512_set1_epi32(1)), high);
  }
  static void store_pairs(float* p, Vector even, Vector odd) {
    const __m512i lower = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    store(p, _mm512_permutex2var_ps(even, lower, odd));
    store(p + 16, _mm512_permutex2var_ps(even, _mm512_add_epi32(lower, _mm512_set1_epi32(8)), odd));
  }

  // x = mantissa * 2^n, the mantissa within [sqrt(1/2), sqrt(2)), for positive normal x.
  static void split_power(Vector x, Vector& n, Vector& mantissa) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i power = _mm512_srai_epi32(_mm512_sub_epi32(bits, _mm512_castps_si512(broadcast(kSqrtHalf))), 23);
    n = _mm512_cvtepi32_ps(power);
    mantissa = _mm512_castsi512_ps(_mm512_sub_epi32(bits, _mm512_slli_epi32(power, 23)));
  }

  // y * 2^(n >> 1) * 2^(n - (n >> 1)) for the integer n that rounded = kRoundMagic + n holds in its low bits.
  static Vector scale_by_power(Vector y, Vector rounded) {
    const __m512i n = _mm512_sub_epi32(_mm512_castps_si512(rounded), _mm512_castps_si512(broadcast(kRoundMagic)));
    const __m512i half = _mm512_srai_epi32(n, 1);
    return _mm512_mul_ps(_mm512_mul_ps(y, power_of_two(half)), power_of_two(_mm512_sub_epi32(n, half)));
  }

  static void expand_bf16(const uint8_t* p, Vector& low, Vector& high) {
    const __m512i words = _mm512_loadu_si512(p);
    low = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
    high = _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static Vector load_fp16(const uint8_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static Vector load_int8(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  // Bytes, shifted to the right, as FP32.
  static Vector load_uint8(const uint8_t* p, int shift) {
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm512_cvtepi32_ps(_mm512_srl_epi32(bytes, _mm_cvtsi32_si128(shift)));
  }
  // Writes (byte - kOffset) * factor for each of eight bytes.
  template <int kOffset>
  static void scale_eight(uint64_t bytes, Vector factor, float* out) {
    const __m256i integers = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
    const __m256 values = _mm256_cvtepi32_ps(_mm256_sub_epi32(integers, _mm256_set1_epi32(kOffset)));
    _mm256_storeu_ps(out, _mm256_mul_ps(values, _mm512_castps512_ps256(factor)));
  }
  // Codes of 4 bits, and of 2 or 3 bits, as FP32 (odmoe/slices.h).
  static void expand_codes4(const uint8_t* p, Vector& low, Vector& high) {
    const __m512i codes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    low = _mm512_cvtepi32_ps(_mm512_and_si512(codes, _mm512_set1_epi32(15)));
    high = _mm512_cvtepi32_ps(_mm512_srli_epi32(codes, 4));
  }
  static constexpr bool kLooksUpCodes = true;
  // code * step + base of all codes of 4 bits.
  static Vector weights_of_codes4(Vector step, Vector base) {
    return fma(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), step, base);
  }
  // The weights code * step + base of codes of 4 bits: all 16 possible ones are computed first, and then looked up.
  static void look_up_codes4(const uint8_t* p, Vector step, Vector base, Vector& low, Vector& high) {
    const __m512i codes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const Vector weights = weights_of_codes4(step, base);
    low = _mm512_permutexvar_ps(codes, weights);  // uses the low four bits of each index
    high = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4), weights);
  }
  template <bool kThree>
  static void expand_codes2(const uint8_t* group, int, Vector& low, Vector& high) {
    int64_t both;
    __builtin_memcpy(&both, group, 8);
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_set1_epi64x(both));
    const __m512i shifts = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
    const __m512i turned = _mm512_srlv_epi32(bytes, shifts);
    __m512i low_codes = _mm512_and_si512(turned, _mm512_set1_epi32(3));
    __m512i high_codes = _mm512_and_si512(_mm512_srli_epi32(turned, 4), _mm512_set1_epi32(3));
    if constexpr (kThree) {
      uint32_t top;
      __builtin_memcpy(&top, group + 8, 4);
      const __m512i four = _mm512_set1_epi32(4);
      low_codes = _mm512_mask_or_epi32(low_codes, static_cast<__mmask16>(top & 0xffffu), low_codes, four);
      high_codes = _mm512_mask_or_epi32(high_codes, static_cast<__mmask16>(top >> 16), high_codes, four);
    }
    low = _mm512_cvtepi32_ps(low_codes);
    high = _mm512_cvtepi32_ps(high_codes);
  }
  static void expand_nf4(const uint8_t* p, Vector& low, Vector& high) {
    const __m512i codes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m512 values = _mm512_loadu_ps(kNf4Values);
    low = _mm512_permutexvar_ps(codes, values);  // uses the low four bits of each index
    high = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4), values);
  }

  // Joins exponents with signs and mantissas to 32 values, in the order of the bf16 layout.
  static void join_bf16(const uint8_t* exponents, const uint8_t* sign_mantissas, uint8_t* out) {
    const __m256i sign = _mm256_set1_epi8(static_cast<char>(0x80));
    const __m256i exponent = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(exponents));
    const __m256i rest = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sign_mantissas));
    const __m256i high = _mm256_or_si256(_mm256_and_si256(rest, sign), _mm256_andnot_si256(sign, _mm256_srli_epi16(exponent, 1)));
    const __m256i low = _mm256_or_si256(_mm256_andnot_si256(sign, rest), _mm256_and_si256(sign, _mm256_slli_epi16(exponent, 7)));
    // `lower` has columns 0 to 7 and 16 to 23, `upper` has columns 8 to 15 and 24 to 31.
    const __m256i lower = _mm256_unpacklo_epi8(low, high);
    const __m256i upper = _mm256_unpackhi_epi8(low, high);
    const __m256i first = _mm256_permute2x128_si256(lower, upper, 0x20);
    const __m256i second = _mm256_permute2x128_si256(lower, upper, 0x31);
    const __m256i even = _mm256_unpacklo_epi16(first, second);
    const __m256i odd = _mm256_unpackhi_epi16(first, second);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32), _mm256_permute2x128_si256(even, odd, 0x31));
  }
  // Expands `count` blocks of a fixed4 tile by its tables to blocks of the bf16 layout; weights with escapes are still wrong.
  template <int64_t kAhead>
  static void expand_fixed4(const uint8_t* tables, const uint8_t* block, int64_t count, uint8_t* bf16) {
    const __m512i high_table = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(tables)));
    const __m512i low_table = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(tables + 16)));
    for (const uint8_t* const end = block + count * kFixed4BlockBytes; block != end; block += kFixed4BlockBytes) {
      if constexpr (kAhead != 0) {
        for (int line = 0; line < 3; ++line) __builtin_prefetch(block + kAhead + line * 64);
      }
      const __m512i codes = _mm512_loadu_si512(block);
      for (int half = 0; half < 2; ++half, bf16 += 128) {
        const __m512i index = _mm512_and_si512(half == 0 ? codes : _mm512_srli_epi16(codes, 4), _mm512_set1_epi8(15));
        const __m512i rest = _mm512_loadu_si512(block + kFixed4CodeBytes + half * 64);
        // (rest & mask) | table
        const __m512i high = _mm512_ternarylogic_epi32(rest, _mm512_set1_epi8(static_cast<char>(0x80)),
                                                       _mm512_shuffle_epi8(high_table, index), 0xea);
        const __m512i low = _mm512_ternarylogic_epi32(rest, _mm512_set1_epi8(0x7f), _mm512_shuffle_epi8(low_table, index), 0xea);
        _mm512_storeu_si512(bf16, _mm512_unpacklo_epi8(low, high));
        _mm512_storeu_si512(bf16 + 64, _mm512_unpackhi_epi8(low, high));
      }
    }
  }

  // Most tokens that fixed4 weights multiply as they stream in from memory, and rows whose sums then fit the registers beside the
  // tables.
  static constexpr int kFixed4Tokens = 6;
  static constexpr int fixed4_rows_at_once(int tokens) { return tokens <= 2 ? kTileRows : 2; }
  struct Fixed4Tables {
    __m512i high;
    __m512i low;
  };
  static Fixed4Tables load_fixed4_tables(const uint8_t* tables) {
    return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(tables))),
            _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(tables + 16)))};
  }
  // Two rows of a block, of its first half or its second, as FP32.
  static void expand_fixed4_rows(const Fixed4Tables& tables, const uint8_t* codes, const uint8_t* rest, int half, Vector (&low)[2],
                                 Vector (&high)[2]) {
    const __m512i both = _mm512_loadu_si512(codes);
    const __m512i index = _mm512_and_si512(half == 0 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
    const __m512i others = _mm512_loadu_si512(rest);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    // (others & sign) | table, (others & ~sign) | table
    const __m512i upper = _mm512_ternarylogic_epi32(others, sign, _mm512_shuffle_epi8(tables.high, index), 0xea);
    const __m512i lower = _mm512_ternarylogic_epi32(others, sign, _mm512_shuffle_epi8(tables.low, index), 0xba);
    const __m512i words[2] = {_mm512_unpacklo_epi8(lower, upper), _mm512_unpackhi_epi8(lower, upper)};
    for (int r = 0; r < 2; ++r) {
      low[r] = _mm512_castsi512_ps(_mm512_slli_epi32(words[r], 16));
      high[r] = _mm512_castsi512_ps(_mm512_and_si512(words[r], _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
    }
  }

  // 32 weights of an mxfp4 row, in the order of the bf16 layout, from their codes, their scale, and the 16 weights of this scale
  // (low bytes, then high ones).
  static void expand_mxfp4(const uint8_t* codes, float scale, const uint8_t*, uint8_t* bf16) {
    Vector low, high;
    expand_mxfp4_row(codes, scale, low, high);
    const __m512i upper = _mm512_castps_si512(high);
    _mm512_storeu_si512(bf16, _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(low), 16), upper));
  }
  static constexpr bool kMxfp4InRegisters = true;
  static constexpr bool kMxfp4RowsTogether = false;
  // The same as FP32, columns 0 to 15 and 16 to 31.
  static void expand_mxfp4_row(const uint8_t* codes, float scale, Vector& low, Vector& high) {
    // Columns 0-3 and 4-7 are in the halves of bytes 0, 2, 4, 6; columns 8-11 and 12-15 in the halves of bytes 8, 10, ...; column
    // 16 + i is in the byte behind column i.
    const __m512i bytes = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
    const __m512i spread = _mm512_setr_epi32(0x0100, 0x0302, 0x0504, 0x0706, 0x0100, 0x0302, 0x0504, 0x0706, 0x0908, 0x0b0a, 0x0d0c,
                                             0x0f0e, 0x0908, 0x0b0a, 0x0d0c, 0x0f0e);
    const __m512i halves = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4);
    const __m512i index = _mm512_srlv_epi32(_mm512_shuffle_epi8(bytes, spread), halves);
    const Vector values = multiply(_mm512_loadu_ps(kMxfp4Values), broadcast(scale));
    low = _mm512_permutexvar_ps(index, values);  // uses the low four bits of each index
    high = _mm512_permutexvar_ps(_mm512_srli_epi32(index, 8), values);
  }
  // The low bytes and the high bytes of W words of an fp8 row as FP32; the results are 256 times smaller than the values.
  static void expand_fp8(const uint8_t* p, Vector& low, Vector& high) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    low = half_of_fp8(_mm256_slli_epi16(words, 8));
    high = half_of_fp8(words);
  }

  // Integers of 32 bits, for the codes of block formats.
  using Integers = __m512i;
  static Integers load_bytes(const uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Integers shift_right(Integers v, int count) { return _mm512_srl_epi32(v, _mm_cvtsi32_si128(count)); }
  static Integers and_bits(Integers v, int bits) { return _mm512_and_si512(v, _mm512_set1_epi32(bits)); }
  static Integers or_bits(Integers a, Integers b) { return _mm512_or_si512(a, b); }
  // `value`, a power of two, in each lane whose bit is set.
  static Integers where_set(uint32_t bits, int value) { return _mm512_maskz_set1_epi32(static_cast<__mmask16>(bits), value); }
  static Vector to_floats(Integers v) { return _mm512_cvtepi32_ps(v); }
  // Looks up bits 0 to 2 in a table of magnitudes; bit 3 is the sign.
  static Vector look_up_magnitudes(const float* table, Integers codes) {
    const __m512 magnitudes = _mm512_broadcast_f32x8(_mm256_loadu_ps(table));
    const __m512i signs = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, kSign, kSign, kSign, kSign, kSign, kSign, kSign, kSign);
    return _mm512_permutexvar_ps(codes, _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(magnitudes), signs)));
  }
  // 2 W bytes: those from p on, then those from q on.
  using Bytes = __m256i;
  static Bytes load_two(const uint8_t* p, const uint8_t* q) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
                                   _mm_loadu_si128(reinterpret_cast<const __m128i*>(q)), 1);
  }
  // The lower halves of W bytes, then the upper ones.
  static Bytes load_halves(const uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return and_bytes(_mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1), 15);
  }
  static Bytes and_bytes(Bytes v, int bits) { return _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(bits))); }
  static Bytes or_bytes(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
  // Bits `mask` of the bytes, after they moved to the left by some places (to the right where `places` is negative).
  static Bytes move_bits(Bytes v, int places, int mask) {
    return and_bytes(places < 0 ? _mm256_srli_epi16(v, -places) : _mm256_slli_epi16(v, places), mask);
  }
  static void to_floats(Bytes v, Vector& low, Vector& high) {
    low = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_castsi256_si128(v)));
    high = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_extracti128_si256(v, 1)));
  }
  // The integers that the table has for codes of 4 bits.
  static void look_up_integers(const int8_t* table, Bytes codes, Vector& low, Vector& high) {
    const Vector values = load_int8(reinterpret_cast<const uint8_t*>(table));
    low = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm256_castsi256_si128(codes)), values);
    high = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm256_extracti128_si256(codes, 1)), values);
  }
  // Codes of the 32 bytes of a row, in the order of the columns.
  static constexpr bool kWholeRows = true;
  using Row = Bytes;
  static Row load_row(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  // 16 bytes whose lower halves are columns 0 to 15.
  static Row load_halves_row(const uint8_t* p) { return load_halves(p); }
  // `value` in the columns whose bit is set.
  static Row row_where_set(uint32_t bits, int value) { return _mm256_maskz_set1_epi8(bits, static_cast<char>(value)); }
  static void to_floats(Row v, Vector (&values)[2]) { to_floats(v, values[0], values[1]); }
  // The same, for bytes with signs; the values are kSignedUnit times what the bytes say.
  static constexpr float kSignedUnit = 1;
  static void to_signed_floats(Row v, Vector (&values)[2]) {
    values[0] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(v)));
    values[1] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(v, 1)));
  }
  static Row subtract_bytes(Row v, int from_each) { return _mm256_sub_epi8(v, _mm256_set1_epi8(static_cast<char>(from_each))); }
  // The integers of 16 bytes whose lower halves are columns 0 to 15; `tables` has them as BF16, their low bytes before their high
  // ones.
  static void look_up_row(const uint8_t* tables, const uint8_t* codes, Vector (&values)[2]) {
    const __m512i words =
        _mm512_or_si512(_mm512_slli_epi32(load_bytes(tables), 16), _mm512_slli_epi32(load_bytes(tables + 16), 24));
    const Vector table = _mm512_castsi512_ps(words);
    const __m512i index = load_bytes(codes);
    values[0] = _mm512_permutexvar_ps(index, table);  // uses the low four bits of each index
    values[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(index, 4), table);
  }
  // The weights of the lower or the upper halves of 32 bytes: all 16 possible ones are computed first, and then looked up.
  template <bool kUpper>
  static void look_up_halves(const uint8_t* bytes, Vector step, Vector base, Vector (&values)[2]) {
    const Vector weights = weights_of_codes4(step, base);
    for (int i = 0; i < 2; ++i) {
      const __m512i index = load_bytes(bytes + 16 * i);
      values[i] = _mm512_permutexvar_ps(kUpper ? _mm512_srli_epi32(index, 4) : index, weights);  // uses the low four bits
    }
  }
  static float half(uint16_t bits) { return _cvtsh_ss(bits); }
  static Vector broadcast_half(uint16_t bits) { return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(bits))); }

  // Folds the 32 partial sums of each of four rows by the binary tree.
  static void fold_rows(const Vector (&sums)[4][2], float* out) {
    __m512 row[4];
    for (int r = 0; r < 4; ++r) row[r] = _mm512_add_ps(sums[r][0], sums[r][1]);
    // Adds lanes 8 apart, with two rows in a vector; then lanes 4 apart, with four rows in a vector.
    const __m512 by8_01 = _mm512_add_ps(_mm512_shuffle_f32x4(row[0], row[1], 0x44), _mm512_shuffle_f32x4(row[0], row[1], 0xee));
    const __m512 by8_23 = _mm512_add_ps(_mm512_shuffle_f32x4(row[2], row[3], 0x44), _mm512_shuffle_f32x4(row[2], row[3], 0xee));
    const __m512 by4 = _mm512_add_ps(_mm512_shuffle_f32x4(by8_01, by8_23, 0x88), _mm512_shuffle_f32x4(by8_01, by8_23, 0xdd));
    const __m512 by2 = _mm512_add_ps(by4, _mm512_permute_ps(by4, 0x4e));
    const __m512 by1 = _mm512_add_ps(by2, _mm512_permute_ps(by2, 0xb1));
    const __m512i pick = _mm512_castsi128_si512(_mm_setr_epi32(0, 4, 8, 12));
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(pick, by1)));
  }
  static float fold(const Vector (&sums)[2]) {
    const __m512 by16 = _mm512_add_ps(sums[0], sums[1]);
    const __m256 by8 = _mm256_add_ps(_mm512_castps512_ps256(by16), _mm512_extractf32x8_ps(by16, 1));
    const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
    const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
  }

 private:
  static constexpr int kSign = static_cast<int>(0x80000000u);
  // Reads E4M3 values in the upper bytes of words as FP16.
  static Vector half_of_fp8(__m256i words) {
    const __m256i sign_and_rest = _mm256_set1_epi16(static_cast<int16_t>(0xbf80));
    return _mm512_cvtph_ps(_mm256_and_si256(_mm256_srai_epi16(words, 1), sign_and_rest));
  }
  static Vector power_of_two(__m512i n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
  }
};

}  // namespace
}  // namespace odmoe::cpu
