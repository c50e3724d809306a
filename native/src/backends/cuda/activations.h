// Activations and the functions that use them (odmoe/arithmetic.h), one value at a time.
#pragma once
#include "device_code.h"
#include "odmoe/operators.h"

namespace odmoe::cuda {

// The logarithm of a positive normal x.
ODMOE_BOTH float logarithm(float x) {
  const uint32_t bits = bits_of_float(x);
  const int32_t power = static_cast<int32_t>(bits - bits_of_float(kSqrtHalf)) >> 23;
  const float f = float_of_bits(bits - (static_cast<uint32_t>(power) << 23)) - 1.0f;
  const float n = static_cast<float>(power);
  // Device code may use an array of constants only where it needs no address.
  constexpr float c0 = kLogCoefficients[0], c1 = kLogCoefficients[1], c2 = kLogCoefficients[2], c3 = kLogCoefficients[3],
                  c4 = kLogCoefficients[4], c5 = kLogCoefficients[5], c6 = kLogCoefficients[6], c7 = kLogCoefficients[7],
                  c8 = kLogCoefficients[8];
  float q = fused(fused(fused(fused(c8, f, c7), f, c6), f, c5), f, c4);
  q = fused(fused(fused(fused(q, f, c3), f, c2), f, c1), f, c0);
  const float square = f * f;
  const float y = fused(n, kLn2Low, fused(square * f, q, -0.5f * square));
  return fused(n, kLn2High, f + y);
}

ODMOE_BOTH float sigmoid_of(float x) { return divided(1.0f, 1.0f + exponential(-x)); }

ODMOE_BOTH float silu_of(float x) { return divided(x, 1.0f + exponential(-x)); }

ODMOE_BOTH float tanh_of(float x) {
  const float magnitude = x < 0.0f ? -x : x;
  const float t = exponential(-2.0f * magnitude);
  const float result = divided(1.0f - t, 1.0f + t);
  return float_of_bits((bits_of_float(result) & 0x7fffffffu) | (bits_of_float(x) & 0x80000000u));
}

// log(1 + exp(x)), corrected by the part of the exponential that the sum loses.
ODMOE_BOTH float softplus_of(float x) {
  const float e = exponential(x);
  const float u = 1.0f + e;
  const float lost = divided(e - (u - 1.0f), u);
  return x > kSoftplusLinear ? x : logarithm(u) + lost;
}

ODMOE_BOTH float activated(float x, Gate gate) {
  if (gate == Gate::softplus) return softplus_of(x);
  return gate == Gate::silu ? silu_of(x) : sigmoid_of(x);
}

ODMOE_BOTH float clipped(float x, float limit) {
  x = x < -limit ? -limit : x;
  return x > limit ? limit : x;
}

// The GLU of a gate value and an up value, with biases already added.
ODMOE_BOTH float glu_of(float gate, float up, const GluShape& shape) {
  if (shape.limit > 0.0f) {
    if (!shape.limits_activation) gate = gate > shape.limit ? shape.limit : gate;
    up = clipped(up, shape.limit);
  }
  float gated;
  if (shape.activation == Activation::tanh) {
    const float t = fused(kGeluCubic * gate * gate, gate, gate) * kGeluScale;
    gated = 0.5f * gate * (1.0f + tanh_of(t));
  } else {
    gated = divided(gate, 1.0f + exponential(-(shape.alpha * gate)));
    if (shape.up_offset != 0.0f) up = up + shape.up_offset;
  }
  if (shape.limit > 0.0f && shape.limits_activation) gated = gated > shape.limit ? shape.limit : gated;
  return gated * up;
}

// x / divisor, limited by the cap (0: no cap).
ODMOE_BOTH float capped(float x, float divisor, float cap) {
  x = divided(x, divisor);
  return cap != 0.0f ? cap * tanh_of(divided(x, cap)) : x;
}

}  // namespace odmoe::cuda
