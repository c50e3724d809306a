// Values of the codes and scales of quantized weights (odmoe/arithmetic.h), as tables by byte. C++17, without code that two
// instruction sets could share.
#pragma once
#include <cstdint>
#include <limits>

namespace odmoe {

struct ByteValues {
  float values[256];
  constexpr float operator[](int byte) const { return values[byte]; }
};

constexpr float power_of_two(int exponent) {
  float value = 1.0f;
  for (; exponent > 0; --exponent) value *= 2.0f;
  for (; exponent < 0; ++exponent) value *= 0.5f;
  return value;
}

// E8M0: 2^(byte - 127); 255 is NaN.
constexpr ByteValues make_e8m0_values() {
  ByteValues table{};
  for (int byte = 0; byte < 255; ++byte) table.values[byte] = power_of_two(byte - 127);
  table.values[255] = std::numeric_limits<float>::quiet_NaN();
  return table;
}

// E4M3: sign, 4 bits of exponent + 7, 3 of mantissa; no infinities, 0x7f and 0xff are NaN.
constexpr ByteValues make_e4m3_values() {
  ByteValues table{};
  for (int byte = 0; byte < 256; ++byte) {
    const int exponent = byte >> 3 & 15;
    const int mantissa = byte & 7;
    const float magnitude = exponent == 0 ? static_cast<float>(mantissa) * power_of_two(-9)
                                          : static_cast<float>(8 + mantissa) * power_of_two(exponent - 10);
    table.values[byte] = (byte & 0x80) != 0 ? -magnitude : magnitude;
    if ((byte & 0x7f) == 0x7f) table.values[byte] = std::numeric_limits<float>::quiet_NaN();
  }
  return table;
}

inline constexpr ByteValues kE8m0Values = make_e8m0_values();
inline constexpr ByteValues kE4m3Values = make_e4m3_values();

}  // namespace odmoe
