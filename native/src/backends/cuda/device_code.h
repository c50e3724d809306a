// Basic functions of all kernels: the parts of the one arithmetic (odmoe/arithmetic.h). The host can run them, too, so that tests
// without a GPU can compare them with the references.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "odmoe/arithmetic.h"

#define ODMOE_BOTH __host__ __device__ __forceinline__

namespace odmoe::cuda {

inline constexpr int kWarp = 32;
static_assert(kWarp == kLanes, "a warp's lane keeps one partial sum");
inline constexpr unsigned kFullWarp = 0xffffffffu;

// One fused multiply-add, and single operations that no compiler may fuse.
ODMOE_BOTH float fused(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

ODMOE_BOTH float divided(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

ODMOE_BOTH float square_root(float x) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

ODMOE_BOTH uint32_t bits_of_float(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}

ODMOE_BOTH float float_of_bits(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
#endif
}

ODMOE_BOTH float power_of_two(int n) { return float_of_bits(static_cast<uint32_t>(n + 127) << 23); }

ODMOE_BOTH float exponential(float x) {
  x = kExpHighest < x ? kExpHighest : x;
  x = kExpLowest > x ? kExpLowest : x;
  const float shifted = fused(x, kLog2E, kRoundMagic);
  const float n = shifted - kRoundMagic;
  float r = fused(n, -kLn2High, x);
  r = fused(n, -kLn2Low, r);
  // Device code may use an array of constants only where it needs no address.
  constexpr float c0 = kExpCoefficients[0], c1 = kExpCoefficients[1], c2 = kExpCoefficients[2], c3 = kExpCoefficients[3],
                  c4 = kExpCoefficients[4];
  const float q = fused(fused(fused(fused(c4, r, c3), r, c2), r, c1), r, c0);
  const float y = 1.0f + fused(q * r, r, r);
  // A NaN stays NaN through all of this; its power does not matter.
  const int power = x == x ? static_cast<int>(n) : 0;
  return y * power_of_two(power >> 1) * power_of_two(power - (power >> 1));
}

}  // namespace odmoe::cuda
