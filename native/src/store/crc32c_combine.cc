// Computes the CRC-32C of two adjacent ranges from the CRC of each: polynomials over GF(2), modulo the Castagnoli polynomial. Bit
// 31 of a word stands for x^0.
#include <array>

#include "odmoe/store.h"

namespace odmoe {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82F63B78u;
constexpr uint32_t kOne = 1u << 31;

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t power = kOne; power != 0; power >>= 1) {
    if ((a & power) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kReversedPolynomial : 0);
  }
  return product;
}

// Entry k: the factor by which 2^k zero bytes multiply a CRC.
constexpr std::array<uint32_t, 64> make_zero_bytes() {
  std::array<uint32_t, 64> factors{};
  uint32_t factor = kOne >> 8;
  for (uint32_t& entry : factors) {
    entry = factor;
    factor = multiply(factor, factor);
  }
  return factors;
}

}  // namespace

uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b) {
  static constexpr std::array<uint32_t, 64> kZeroBytes = make_zero_bytes();
  for (size_t k = 0; length_b != 0; k++, length_b >>= 1) {
    if ((length_b & 1) != 0) crc_a = multiply(crc_a, kZeroBytes[k]);
  }
  return crc_a ^ crc_b;
}

}  // namespace odmoe
