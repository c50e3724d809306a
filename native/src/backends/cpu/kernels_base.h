// Every kernels_*.cc is compiled once for each instruction set; its headers include this one first. All that is here and there has
// internal linkage, but for the few functions of kernels_units.h: a function with external linkage could be compiled with one set's
// instructions and be called, by the linker's choice, from code for a processor that lacks them. For the same reason the kernels use
// no function of the C++ library.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernel_table.h"
#include "odmoe/arithmetic.h"
#include "odmoe/backend.h"
#include "weight_layout.h"

#define ODMOE_INLINE [[gnu::always_inline]] inline

namespace odmoe::cpu {
namespace {

ODMOE_INLINE uint32_t float_bits(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits;
}

ODMOE_INLINE float float_of_bits(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}

// The conversion is exact. An addition moves the exponent; for a denormal, the value of the hidden bit is then subtracted.
ODMOE_INLINE float float_of_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
  const uint32_t exponent = magnitude & 0x0f800000u;
  const uint32_t normal = magnitude + ((127u - 15u) << 23);
  const uint32_t special = magnitude + ((255u - 31u) << 23);
  const uint32_t denormal = float_bits(float_of_bits(magnitude + ((127u - 14u) << 23)) - 0x1p-14f);
  return float_of_bits(sign | (exponent == 0 ? denormal : exponent == 0x0f800000u ? special : normal));
}

// Rounds to nearest, ties to even; values that are too large become infinity.
ODMOE_INLINE uint16_t half_of_float(float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding 1/2 aligns the denormal's last bit (2^-24) with the last bit of the sum, so that the addition rounds.
  const uint32_t denormal = float_bits(float_of_bits(magnitude) + 0.5f) - float_bits(0.5f);
  const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t half = magnitude >= 0x47800000u ? special : magnitude < 0x38800000u ? denormal : normal;
  return static_cast<uint16_t>(sign | half);
}

// Rounds to nearest, ties to even; NaN stays NaN.
ODMOE_INLINE uint16_t bf16_of_float(float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

}  // namespace
}  // namespace odmoe::cpu
