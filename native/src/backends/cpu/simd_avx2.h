// The vectors of AVX2 with FMA and F16C.
#pragma once
#include <immintrin.h>

#include "kernels_base.h"

namespace odmoe::cpu {
namespace {

struct Simd {
  using Vector = __m256;
  static constexpr const char* kName = "avx2";
  // Ends the use of wide registers. Where their upper halves are in use, code of the processor's first vectors, such as all that is compiled
  // without options, may take 70 times as long. The compiler forgets it in functions that end in the call of another.
  static void leave() { _mm256_zeroupper(); }
  static constexpr int kWidth = 8;
  // Rows of a tile whose sums fit the 16 registers together with `tokens` tokens.
  static constexpr int rows_at_once(int tokens) { return tokens == 1 ? kTileRows : tokens <= 3 ? 2 : 1; }

  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector broadcast(float x) { return _mm256_set1_ps(x); }
  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  static void keep_in_register(Vector& v) { asm("" : "+x"(v)); }
  static __m256i first(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Vector load_first(const float* p, int64_t count) { return _mm256_maskload_ps(p, first(count)); }
  static void store_first(float* p, Vector v, int64_t count) { _mm256_maskstore_ps(p, first(count), v); }

  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static Vector subtract(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
  static Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  static Vector divide(Vector a, Vector b) { return _mm256_div_ps(a, b); }
  // a > b ? a : b, and a < b ? a : b: b when either is NaN.
  static Vector greater(Vector a, Vector b) { return _mm256_max_ps(a, b); }
  static Vector lesser(Vector a, Vector b) { return _mm256_min_ps(a, b); }
  static Vector absolute(Vector x) { return _mm256_andnot_ps(broadcast(-0.0f), x); }
  // The magnitude of x, which is not negative, with the sign of y.
  static Vector copy_sign(Vector x, Vector y) { return _mm256_or_ps(x, _mm256_and_ps(y, broadcast(-0.0f))); }
  // a > b ? x : y.
  static Vector select_greater(Vector a, Vector b, Vector x, Vector y) {
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
  }
  // A bit for each lane in which a == b.
  static uint32_t equal_lanes(Vector a, Vector b) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)));
  }
  // Loads pairs of neighbours: the even and the odd elements.
  static void load_pairs(const float* p, Vector& even, Vector& odd) {
    const Vector low = load(p);
    const Vector high = load(p + 8);
    even = in_order(_mm256_shuffle_ps(low, high, 0x88));
    odd = in_order(_mm256_shuffle_ps(low, high, 0xdd));
  }
  static void store_pairs(float* p, Vector even, Vector odd) {
    const Vector lower = _mm256_unpacklo_ps(even, odd);
    const Vector upper = _mm256_unpackhi_ps(even, odd);
    store(p, _mm256_permute2f128_ps(lower, upper, 0x20));
    store(p + 8, _mm256_permute2f128_ps(lower, upper, 0x31));
  }

  // x = mantissa * 2^n, the mantissa within [sqrt(1/2), sqrt(2)), for positive normal x.
  static void split_power(Vector x, Vector& n, Vector& mantissa) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i power = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_castps_si256(broadcast(kSqrtHalf))), 23);
    n = _mm256_cvtepi32_ps(power);
    mantissa = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(power, 23)));
  }

  // y * 2^(n >> 1) * 2^(n - (n >> 1)) for the integer n that rounded = kRoundMagic + n holds in its low bits.
  static Vector scale_by_power(Vector y, Vector rounded) {
    const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(rounded), _mm256_castps_si256(broadcast(kRoundMagic)));
    const __m256i half = _mm256_srai_epi32(n, 1);
    return _mm256_mul_ps(_mm256_mul_ps(y, power_of_two(half)), power_of_two(_mm256_sub_epi32(n, half)));
  }

  static void expand_bf16(const uint8_t* p, Vector& low, Vector& high) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    low = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
    high = _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static Vector load_fp16(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static Vector load_int8(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  // Bytes, shifted to the right, as FP32.
  static Vector load_uint8(const uint8_t* p, int shift) {
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    return _mm256_cvtepi32_ps(_mm256_srl_epi32(bytes, _mm_cvtsi32_si128(shift)));
  }
  // Codes of 4 bits, and of 2 or 3 bits, as FP32 (odmoe/slices.h).
  static void expand_codes4(const uint8_t* p, Vector& low, Vector& high) {
    const __m256i codes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    low = _mm256_cvtepi32_ps(_mm256_and_si256(codes, _mm256_set1_epi32(15)));
    high = _mm256_cvtepi32_ps(_mm256_srli_epi32(codes, 4));
  }
  static constexpr bool kLooksUpCodes = false;
  template <bool kThree>
  static void expand_codes2(const uint8_t* group, int pair, Vector& low, Vector& high) {
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(group)));
    const __m256i turned = _mm256_srl_epi32(bytes, _mm_cvtsi32_si128(2 * pair));
    __m256i low_codes = _mm256_and_si256(turned, _mm256_set1_epi32(3));
    __m256i high_codes = _mm256_and_si256(_mm256_srli_epi32(turned, 4), _mm256_set1_epi32(3));
    if constexpr (kThree) {
      uint32_t top;
      __builtin_memcpy(&top, group + 8, 4);
      low_codes = _mm256_or_si256(low_codes, top_bits(top >> (8 * pair)));
      high_codes = _mm256_or_si256(high_codes, top_bits(top >> (16 + 8 * pair)));
    }
    low = _mm256_cvtepi32_ps(low_codes);
    high = _mm256_cvtepi32_ps(high_codes);
  }
  static void expand_nf4(const uint8_t* p, Vector& low, Vector& high) {
    const __m256i codes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    low = nf4_values(codes);
    high = nf4_values(_mm256_srli_epi32(codes, 4));
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
    const __m256i high_table = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(tables)));
    const __m256i low_table = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(tables + 16)));
    const __m256i sign = _mm256_set1_epi8(static_cast<char>(0x80));
    for (const uint8_t* const end = block + count * kFixed4BlockBytes; block != end; block += kFixed4BlockBytes, bf16 += 256) {
      if constexpr (kAhead != 0) {
        for (int line = 0; line < 3; ++line) __builtin_prefetch(block + kAhead + line * 64);
      }
      for (int part = 0; part < 64; part += 32) {
        const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + part));
        for (int half = 0; half < 2; ++half) {
          const __m256i index = _mm256_and_si256(half == 0 ? codes : _mm256_srli_epi16(codes, 4), _mm256_set1_epi8(15));
          const __m256i rest = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + kFixed4CodeBytes + half * 64 + part));
          const __m256i high = _mm256_or_si256(_mm256_and_si256(rest, sign), _mm256_shuffle_epi8(high_table, index));
          const __m256i low = _mm256_or_si256(_mm256_andnot_si256(sign, rest), _mm256_shuffle_epi8(low_table, index));
          uint8_t* const rows = bf16 + half * 128 + part;
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows), _mm256_unpacklo_epi8(low, high));
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows + 64), _mm256_unpackhi_epi8(low, high));
        }
      }
    }
  }

  // Most tokens that fixed4 weights multiply as they stream in from memory, and rows whose sums then fit the registers beside the
  // tables.
  static constexpr int kFixed4Tokens = 2;
  static constexpr int fixed4_rows_at_once(int) { return 2; }
  struct Fixed4Tables {
    __m256i high;
    __m256i low;
  };
  static Fixed4Tables load_fixed4_tables(const uint8_t* tables) {
    return {_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(tables))),
            _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(tables + 16)))};
  }
  // Columns W*pair.. and 16 + W*pair.. of two rows of a block, of its first half or its second, as FP32.
  static void expand_fixed4_rows(const Fixed4Tables& tables, const uint8_t* codes, const uint8_t* rest, int half, Vector (&low)[2],
                                 Vector (&high)[2]) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
    const __m256i index = _mm256_and_si256(half == 0 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
    const __m256i others = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rest));
    const __m256i sign = _mm256_set1_epi8(static_cast<char>(0x80));
    const __m256i upper = _mm256_or_si256(_mm256_and_si256(others, sign), _mm256_shuffle_epi8(tables.high, index));
    const __m256i lower = _mm256_or_si256(_mm256_andnot_si256(sign, others), _mm256_shuffle_epi8(tables.low, index));
    const __m256i words[2] = {_mm256_unpacklo_epi8(lower, upper), _mm256_unpackhi_epi8(lower, upper)};
    for (int r = 0; r < 2; ++r) {
      low[r] = _mm256_castsi256_ps(_mm256_slli_epi32(words[r], 16));
      high[r] = _mm256_castsi256_ps(_mm256_and_si256(words[r], _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
    }
  }

  // 32 weights of an mxfp4 row, in the order of the bf16 layout, from their codes, their scale, and the 16 weights of this scale
  // (low bytes, then high ones).
  static void expand_mxfp4(const uint8_t* codes, float, const uint8_t* weights, uint8_t* bf16) {
    __m256i words[2];
    look_up_mxfp4(codes, weights, words);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bf16), words[0]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bf16 + 32), words[1]);
  }
  static constexpr bool kMxfp4RowsTogether = true;
  // The same as FP32, columns 0 to 7, 8 to 15 and so on.
  static void expand_mxfp4_row(const uint8_t* codes, const uint8_t* weights, Vector (&values)[4]) {
    __m256i words[2];
    look_up_mxfp4(codes, weights, words);
    for (int i = 0; i < 2; ++i) {
      values[i] = _mm256_castsi256_ps(_mm256_slli_epi32(words[i], 16));
      values[2 + i] = _mm256_castsi256_ps(_mm256_and_si256(words[i], _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
    }
  }
  static constexpr bool kMxfp4InRegisters = false;
  // The low bytes and the high bytes of W words of an fp8 row as FP32; the results are 256 times smaller than the values.
  static void expand_fp8(const uint8_t* p, Vector& low, Vector& high) {
    const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    low = half_of_fp8(_mm_slli_epi16(words, 8));
    high = half_of_fp8(words);
  }

  // Integers of 32 bits, for the codes of block formats.
  using Integers = __m256i;
  static Integers load_bytes(const uint8_t* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static Integers shift_right(Integers v, int count) { return _mm256_srl_epi32(v, _mm_cvtsi32_si128(count)); }
  static Integers and_bits(Integers v, int bits) { return _mm256_and_si256(v, _mm256_set1_epi32(bits)); }
  static Integers or_bits(Integers a, Integers b) { return _mm256_or_si256(a, b); }
  // `value`, a power of two, in each lane whose bit is set.
  static Integers where_set(uint32_t bits, int value) {
    const __m256i places = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), places), places);
    return _mm256_and_si256(set, _mm256_set1_epi32(value));
  }
  static Vector to_floats(Integers v) { return _mm256_cvtepi32_ps(v); }
  // Looks up bits 0 to 2 in a table of magnitudes; bit 3 is the sign.
  static Vector look_up_magnitudes(const float* table, Integers codes) {
    const __m256 magnitudes = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), codes);
    return copy_sign(magnitudes, _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28)));
  }
  // 2 W bytes: those from p on, then those from q on.
  using Bytes = __m128i;
  static Bytes load_two(const uint8_t* p, const uint8_t* q) {
    return _mm_unpacklo_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)),
                              _mm_loadl_epi64(reinterpret_cast<const __m128i*>(q)));
  }
  // The lower halves of W bytes, then the upper ones.
  static Bytes load_halves(const uint8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return and_bytes(_mm_unpacklo_epi64(bytes, _mm_srli_epi16(bytes, 4)), 15);
  }
  static Bytes and_bytes(Bytes v, int bits) { return _mm_and_si128(v, _mm_set1_epi8(static_cast<char>(bits))); }
  static Bytes or_bytes(Bytes a, Bytes b) { return _mm_or_si128(a, b); }
  // Bits `mask` of the bytes, after they moved to the left by some places (to the right where `places` is negative).
  static Bytes move_bits(Bytes v, int places, int mask) {
    return and_bytes(places < 0 ? _mm_srli_epi16(v, -places) : _mm_slli_epi16(v, places), mask);
  }
  static void to_floats(Bytes v, Vector& low, Vector& high) {
    low = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v));
    high = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(v, v)));
  }
  // The integers that the table has for codes of 4 bits.
  static void look_up_integers(const int8_t* table, Bytes codes, Vector& low, Vector& high) {
    const __m128i values = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)), codes);
    low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(values));
    high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(values, values)));
  }
  // The same for the 32 bytes of a row, four columns after four: columns 0 to 3, 8 to 11, 16 to 19, 24 to 27, then the others.
  static constexpr bool kWholeRows = true;
  using Row = __m256i;
  static Row load_row(const uint8_t* p) {
    return _mm256_permutevar8x32_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
                                       _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
  }
  // 16 bytes whose lower halves are columns 0 to 15.
  static Row load_halves_row(const uint8_t* p) {
    const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i places = _mm256_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15, 4, 5, 6,
                                            7, 12, 13, 14, 15);
    return and_bytes(_mm256_srlv_epi64(_mm256_shuffle_epi8(both, places), _mm256_setr_epi64x(0, 4, 0, 4)), 15);
  }
  // `value` in the columns whose bit is set.
  static Row row_where_set(uint32_t bits, int value) {
    const __m256i bytes =
        _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)),
                            _mm256_setr_epi64x(0x0101010100000000, 0x0303030302020202, 0x0101010100000000, 0x0303030302020202));
    const auto low = static_cast<int64_t>(0x0804020108040201);
    const auto high = static_cast<int64_t>(0x8040201080402010);
    const __m256i places = _mm256_setr_epi64x(low, low, high, high);
    return and_bytes(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, places), places), value);
  }
  static Row and_bytes(Row v, int bits) { return _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(bits))); }
  static Row or_bytes(Row a, Row b) { return _mm256_or_si256(a, b); }
  static Row move_bits(Row v, int places, int mask) {
    return and_bytes(places < 0 ? _mm256_srli_epi16(v, -places) : _mm256_slli_epi16(v, places), mask);
  }
  // Columns 0 to 7, 8 to 15 and so on: each half of a row has four columns of each vector.
  static void to_floats(Row v, Vector (&values)[4]) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) values[i] = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(v, spread(4 * i, 0)));
  }
  // The same, for bytes with signs; the values are kSignedUnit times what the bytes say.
  static constexpr float kSignedUnit = 0x1p24f;
  static void to_signed_floats(Row v, Vector (&values)[4]) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) values[i] = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(v, spread(4 * i, 24)));
  }
  static Row subtract_bytes(Row v, int from_each) { return _mm256_sub_epi8(v, _mm256_set1_epi8(static_cast<char>(from_each))); }
  // The integers of 16 bytes whose lower halves are columns 0 to 15: they are joined as BF16 from two tables of bytes.
  static void look_up_row(const uint8_t* tables, const uint8_t* codes, Vector (&values)[4]) {
    const auto both_halves = [](const uint8_t* p) {
      return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    };
    const __m256i places = _mm256_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15, 4, 12,
                                            5, 13, 6, 14, 7, 15);
    const __m256i halves = _mm256_srlv_epi64(_mm256_shuffle_epi8(both_halves(codes), places), _mm256_setr_epi64x(0, 4, 0, 4));
    const __m256i index = _mm256_and_si256(halves, _mm256_set1_epi8(15));
    const __m256i low = _mm256_shuffle_epi8(both_halves(tables), index);
    const __m256i high = _mm256_shuffle_epi8(both_halves(tables + 16), index);
    for (int i = 0; i < 2; ++i) {
      const __m256i words = i == 0 ? _mm256_unpacklo_epi8(low, high) : _mm256_unpackhi_epi8(low, high);
      values[2 * i] = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
      values[2 * i + 1] = _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
    }
  }
  static float half(uint16_t bits) { return _cvtsh_ss(bits); }
  static Vector broadcast_half(uint16_t bits) { return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(bits))); }

  // Folds the 32 partial sums of each of four rows by the binary tree.
  static void fold_rows(const Vector (&sums)[4][4], float* out) {
    for (int r = 0; r < 4; ++r) out[r] = fold(sums[r]);
  }
  static float fold(const Vector (&sums)[4]) {
    const __m256 by8 = _mm256_add_ps(_mm256_add_ps(sums[0], sums[2]), _mm256_add_ps(sums[1], sums[3]));
    const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
    const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
  }

 private:
  // Places for a shuffle that moves four bytes of each half, from `first` on, to bit `to` of words of 32 bits; it makes the other bits 0.
  static __m256i spread(int first, int to) {
    const uint32_t zeros = ~(0xffu << to) & 0x80808080u;
    const auto place = [=](int i) { return static_cast<int>(zeros | static_cast<uint32_t>(first + i) << to); };
    return _mm256_setr_epi32(place(0), place(1), place(2), place(3), place(0), place(1), place(2), place(3));
  }
  // The bf16 layout's words 0 to 15 and 16 to 31 of an mxfp4 row.
  static void look_up_mxfp4(const uint8_t* codes, const uint8_t* weights, __m256i (&words)[2]) {
    const auto both_halves = [](const uint8_t* p) {
      return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    };
    const __m256i halves = _mm256_srlv_epi64(both_halves(codes), _mm256_setr_epi64x(0, 0, 4, 4));
    const __m256i index = _mm256_and_si256(halves, _mm256_set1_epi8(15));
    const __m256i low = _mm256_shuffle_epi8(both_halves(weights), index);
    const __m256i high = _mm256_shuffle_epi8(both_halves(weights + 16), index);
    words[0] = _mm256_unpacklo_epi8(low, high);
    words[1] = _mm256_unpackhi_epi8(low, high);
  }
  // Reads E4M3 values in the upper bytes of words as FP16.
  static Vector half_of_fp8(__m128i words) {
    const __m128i sign_and_rest = _mm_set1_epi16(static_cast<int16_t>(0xbf80));
    return _mm256_cvtph_ps(_mm_and_si128(_mm_srai_epi16(words, 1), sign_and_rest));
  }
  // Exchanges the second and the third pair of lanes.
  static Vector in_order(Vector v) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8)); }
  static Vector power_of_two(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
  // Looks up the low four bits of each index: two permutations by bits 0-2, chosen by bit 3.
  // 4 in each lane whose bit is set.
  static __m256i top_bits(uint32_t bits) {
    const __m256i spread =
        _mm256_sllv_epi32(_mm256_set1_epi32(static_cast<int>(bits)), _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24));
    return _mm256_slli_epi32(_mm256_srli_epi32(spread, 31), 2);
  }
  static Vector nf4_values(__m256i codes) {
    const __m256 below = _mm256_permutevar8x32_ps(_mm256_loadu_ps(kNf4Values), codes);
    const __m256 above = _mm256_permutevar8x32_ps(_mm256_loadu_ps(kNf4Values + 8), codes);
    return _mm256_blendv_ps(below, above, _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28)));
  }
};

}  // namespace
}  // namespace odmoe::cpu
