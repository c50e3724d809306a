// Stand-in for NVIDIA's header of the same name.
#pragma once

#include "cuda_runtime.h"

struct __nv_bfloat16_raw {
  unsigned short x;
};

struct __nv_bfloat16 {
  unsigned short bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(__nv_bfloat16_raw raw) : bits(raw.x) {}
  __nv_bfloat16(float value);
  operator float() const { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
  operator __nv_bfloat16_raw() const { return {bits}; }
};
static_assert(sizeof(__nv_bfloat16) == 2, "as on the device");
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

// Rounds to nearest, ties to even; every NaN becomes 0x7fff, as on the device.
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  const unsigned u = __float_as_uint(value);
  if ((u & 0x7fffffffu) > 0x7f800000u) return __nv_bfloat16(__nv_bfloat16_raw{0x7fff});
  return __nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)});
}
inline __nv_bfloat16::__nv_bfloat16(float value) : bits(__float2bfloat16_rn(value).bits) {}
inline __nv_bfloat16 __float2bfloat16(float value) { return __float2bfloat16_rn(value); }
inline float __bfloat162float(__nv_bfloat16 value) { return static_cast<float>(value); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16(__nv_bfloat16_raw{bits}); }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__float2bfloat16_rn(a), __float2bfloat16_rn(b)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 value) { return {__bfloat162float(value.x), __bfloat162float(value.y)}; }
