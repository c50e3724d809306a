// Compiled with AVX-512 F and BW and with BMI2 (native/CMakeLists.txt).
#if defined(__GNUC__) && !defined(__clang__)
// GCC's own header starts many intrinsics from a register that it leaves undefined on purpose, and warns about it.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "plane_kernels_portable.h"

namespace odmoe {
namespace {

constexpr uint64_t kStep = 64;
constexpr uint64_t kGroupsPerStep = 4;

void expand_codes_avx512(const uint8_t* codes, const uint8_t* table, uint8_t* out, uint64_t groups) {
  const __m512i values = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  const __m512i nibble = _mm512_set1_epi8(15);
  // The low codes' quarters alternate with the high codes'.
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  for (; groups >= kGroupsPerStep;
       groups -= kGroupsPerStep, codes += kGroupsPerStep * kGroupCodeBytes, out += kGroupsPerStep * kGroupValues) {
    const __m512i both = _mm512_loadu_si512(codes);
    const __m512i low = _mm512_shuffle_epi8(values, _mm512_and_si512(both, nibble));
    const __m512i high = _mm512_shuffle_epi8(values, _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble));
    _mm512_storeu_si512(out, _mm512_permutex2var_epi64(low, first, high));
    _mm512_storeu_si512(out + kStep, _mm512_permutex2var_epi64(low, second, high));
  }
  expand_codes_portable(codes, table, out, groups);
}

template <bool streaming>
void store(uint8_t* out, __m512i value) {
  if constexpr (streaming) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out), value);
  } else {
    _mm512_storeu_si512(out, value);
  }
}

// Returns the number of merged values; fewer than a step remain.
template <bool streaming>
uint64_t merge_steps(const uint8_t* exponents, const uint8_t* sign_mantissas, uint8_t* out, uint64_t count) {
  const __m512i top_bit = _mm512_set1_epi8(static_cast<char>(0x80));
  // Puts eighths in such an order that the unpacking, which works on quarters, gives values in order.
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  constexpr int kSelectByThird = 0xD8;  // the second operand where the third has ones, else the first
  uint64_t done = 0;
  for (; done + kStep <= count; done += kStep) {
    const __m512i e = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(exponents + done));
    const __m512i sm = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(sign_mantissas + done));
    const __m512i low_bytes = _mm512_ternarylogic_epi64(sm, _mm512_slli_epi16(e, 7), top_bit, kSelectByThird);
    const __m512i high_bytes = _mm512_ternarylogic_epi64(_mm512_srli_epi16(e, 1), sm, top_bit, kSelectByThird);
    store<streaming>(out + 2 * done, _mm512_unpacklo_epi8(low_bytes, high_bytes));
    store<streaming>(out + 2 * done + kStep, _mm512_unpackhi_epi8(low_bytes, high_bytes));
  }
  return done;
}

void merge_bf16_avx512(const uint8_t* exponents, const uint8_t* sign_mantissas, uint8_t* out, uint64_t count, bool streaming) {
  uint64_t done = 0;
  if (streaming) {
    done = values_to_alignment(out, kStep, count);
    merge_bf16_portable(exponents, sign_mantissas, out, done);
    done += merge_steps<true>(exponents + done, sign_mantissas + done, out + 2 * done, count - done);
    _mm_sfence();
  } else {
    done = merge_steps<false>(exponents, sign_mantissas, out, count);
  }
  merge_bf16_portable(exponents + done, sign_mantissas + done, out + 2 * done, count - done);
}

}  // namespace

const PlaneKernels kAvx512PlaneKernels = {"avx512", expand_codes_avx512, decode_streams_portable, merge_bf16_avx512,
                                          join_e4m3_portable};

}  // namespace odmoe
