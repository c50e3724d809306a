// Expands the fixed4 format to BF16 (weight_layout.h): the codes of four weights at a time.
#pragma once
#include "device_code.h"

namespace odmoe::cuda {

// The bytes of {high, low} that the selector's four digits choose.
ODMOE_BOTH uint32_t permuted(uint32_t low, uint32_t high, uint32_t selector) {
#ifdef __CUDA_ARCH__
  return __byte_perm(low, high, selector);
#else
  const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) result |= static_cast<uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
  return result;
#endif
}

// A tile's two tables, 16 bytes each: an exponent's bits in the high byte of a BF16 and in the low one.
struct Fixed4Tables {
  uint32_t high[4];
  uint32_t low[4];
};

struct Bf16Pairs {
  uint32_t first;   // weights 0 (low half) and 1
  uint32_t second;  // weights 2 and 3
};

// Four weights: their bytes of sign and mantissa, and their codes in the low 16 bits of `codes`.
ODMOE_BOTH Bf16Pairs fixed4_lookup(const Fixed4Tables& tables, uint32_t sign_mantissas, uint32_t codes) {
  const uint32_t in_half = codes & 0x7777u;
  const uint32_t upper_half = (codes >> 1 & 0x4444u) | 0x3210u;
  const uint32_t high =
      permuted(permuted(tables.high[0], tables.high[1], in_half), permuted(tables.high[2], tables.high[3], in_half), upper_half) |
      (sign_mantissas & 0x80808080u);
  const uint32_t low =
      permuted(permuted(tables.low[0], tables.low[1], in_half), permuted(tables.low[2], tables.low[3], in_half), upper_half) |
      (sign_mantissas & 0x7f7f7f7fu);
  return {permuted(low, high, 0x5140u), permuted(low, high, 0x7362u)};
}

// An escaped weight with its own exponent.
ODMOE_BOTH uint32_t with_exponent(uint32_t bf16, uint32_t exponent) { return (bf16 & 0x807fu) | exponent << 7; }

}  // namespace odmoe::cuda
