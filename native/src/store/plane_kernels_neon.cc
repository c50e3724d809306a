// For 64-bit ARM, which always has NEON.
#if defined(__aarch64__)
#include <arm_neon.h>

#include "plane_kernels_portable.h"

namespace odmoe {
namespace {

constexpr uint64_t kStep = 16;

void expand_codes_neon(const uint8_t* codes, const uint8_t* table, uint8_t* out, uint64_t groups) {
  const uint8x16_t values = vld1q_u8(table);
  const uint8x16_t nibble = vdupq_n_u8(15);
  for (; groups > 0; groups--, codes += kGroupCodeBytes, out += kGroupValues) {
    const uint8x16_t both = vld1q_u8(codes);
    vst1q_u8(out, vqtbl1q_u8(values, vandq_u8(both, nibble)));
    vst1q_u8(out + kStep, vqtbl1q_u8(values, vshrq_n_u8(both, 4)));
  }
}

// NEON has no intrinsic for stores past the caches; the processor itself detects long runs of stores.
void merge_bf16_neon(const uint8_t* exponents, const uint8_t* sign_mantissas, uint8_t* out, uint64_t count, bool) {
  const uint8x16_t top_bit = vdupq_n_u8(0x80);
  uint64_t done = 0;
  for (; done + kStep <= count; done += kStep) {
    const uint8x16_t e = vld1q_u8(exponents + done);
    const uint8x16_t sm = vld1q_u8(sign_mantissas + done);
    const uint8x16x2_t bytes = {{vbslq_u8(top_bit, vshlq_n_u8(e, 7), sm), vbslq_u8(top_bit, sm, vshrq_n_u8(e, 1))}};
    vst2q_u8(out + 2 * done, bytes);
  }
  merge_bf16_portable(exponents + done, sign_mantissas + done, out + 2 * done, count - done);
}

}  // namespace

const PlaneKernels kNeonPlaneKernels = {"neon", expand_codes_neon, decode_streams_portable, merge_bf16_neon, join_e4m3_portable};

}  // namespace odmoe
#endif
