// Compiled with AVX2 and BMI2 (native/CMakeLists.txt).
#include <immintrin.h>

#include "plane_kernels_portable.h"

namespace odmoe {
namespace {

constexpr uint64_t kStep = 32;

void expand_codes_avx2(const uint8_t* codes, const uint8_t* table, uint8_t* out, uint64_t groups) {
  const __m256i values = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  const __m256i nibble = _mm256_set1_epi8(15);
  for (; groups >= 2; groups -= 2, codes += 2 * kGroupCodeBytes, out += 2 * kGroupValues) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
    const __m256i low = _mm256_shuffle_epi8(values, _mm256_and_si256(both, nibble));
    const __m256i high = _mm256_shuffle_epi8(values, _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble));
    auto* const to = reinterpret_cast<__m256i*>(out);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(low, high, 0x31));
  }
  expand_codes_portable(codes, table, out, groups);
}

template <bool streaming>
void store(uint8_t* out, __m256i value) {
  if constexpr (streaming) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(out), value);
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), value);
  }
}

// Returns the number of merged values; fewer than a step remain.
template <bool streaming>
uint64_t merge_steps(const uint8_t* exponents, const uint8_t* sign_mantissas, uint8_t* out, uint64_t count) {
  const __m256i top_bit = _mm256_set1_epi8(static_cast<char>(0x80));
  uint64_t done = 0;
  for (; done + kStep <= count; done += kStep) {
    // Quarters in the order 0 2 1 3, so that the unpacking, which works on halves, gives values in order.
    const __m256i e = _mm256_permute4x64_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(exponents + done)), 0xD8);
    const __m256i sm = _mm256_permute4x64_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(sign_mantissas + done)), 0xD8);
    const __m256i low_bytes = _mm256_or_si256(_mm256_and_si256(top_bit, _mm256_slli_epi16(e, 7)), _mm256_andnot_si256(top_bit, sm));
    const __m256i high_bytes =
        _mm256_or_si256(_mm256_and_si256(top_bit, sm), _mm256_andnot_si256(top_bit, _mm256_srli_epi16(e, 1)));
    store<streaming>(out + 2 * done, _mm256_unpacklo_epi8(low_bytes, high_bytes));
    store<streaming>(out + 2 * done + kStep, _mm256_unpackhi_epi8(low_bytes, high_bytes));
  }
  return done;
}

void merge_bf16_avx2(const uint8_t* exponents, const uint8_t* sign_mantissas, uint8_t* out, uint64_t count, bool streaming) {
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

const PlaneKernels kAvx2PlaneKernels = {"avx2", expand_codes_avx2, decode_streams_portable, merge_bf16_avx2, join_e4m3_portable};

}  // namespace odmoe
