#include "quantized_weights.h"

#include <cmath>
#include <cstring>

namespace odmoe::test {
namespace {

// 2^exponent, computed in another way than in the tables of odmoe/quantized_values.h.
float power(int exponent) { return static_cast<float>(std::ldexp(1.0, exponent)); }

float mxfp4_value(int code, int scale) {
  constexpr float kMagnitudes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const double magnitude = std::ldexp(static_cast<double>(kMagnitudes[code & 7]), scale - 127);
  return static_cast<float>((code & 8) != 0 ? -magnitude : magnitude);
}

float fp8_value(uint8_t code, float scale) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  // The product of two doubles that were floats is exact, so this rounds once.
  return static_cast<float>(((code & 0x80) != 0 ? -magnitude : magnitude) * static_cast<double>(scale));
}

uint8_t random_e8m0(std::mt19937& random, Scales scales) {
  return static_cast<uint8_t>(scales == Scales::usual ? 112 + random() % 14 : random() % 253);
}

float random_fp8_scale(std::mt19937& random, Scales scales) {
  const float mantissa = 1.0f + static_cast<float>(random() % 8388608) * 0x1p-23f;
  if (scales == Scales::usual) return mantissa * power(-12 - static_cast<int>(random() % 4));
  const auto kind = random() % 8;
  if (kind == 0) return 0.0f;
  if (kind == 1) return static_cast<float>(random() % 5000) * 0x1p-149f;
  if (kind == 2) return 0x1p119f;
  return mantissa * power(static_cast<int>(random() % 240) - 122);
}

}  // namespace

QuantizedWeights random_quantized_weights(uint32_t seed, Split split, int64_t rows, int64_t columns, Scales scales) {
  std::mt19937 random(seed);
  QuantizedWeights weights{split, rows, columns, {}};
  for (int plane = 0; plane < 2; plane++) {
    weights.planes[plane].resize(static_cast<size_t>(rows * plane_row_bytes(split, plane, columns)));
  }
  for (uint8_t& byte : weights.planes[0]) {
    byte = static_cast<uint8_t>(random());
    if (split == Split::fp8 && (byte & 0x7f) == 0x7f) byte = 0x80;
  }
  std::vector<uint8_t>& scale_bytes = weights.planes[1];
  if (split == Split::mxfp4) {
    for (uint8_t& byte : scale_bytes) byte = random_e8m0(random, scales);
  } else {
    for (size_t i = 0; i < scale_bytes.size(); i += 4) {
      const float scale = random_fp8_scale(random, scales);
      std::memcpy(scale_bytes.data() + i, &scale, 4);
    }
  }
  return weights;
}

std::vector<const uint8_t*> QuantizedWeights::at(int64_t row) const {
  return {planes[0].data() + row * plane_row_bytes(split, 0, columns), planes[1].data() + row * plane_row_bytes(split, 1, columns)};
}

std::vector<float> QuantizedWeights::values() const {
  std::vector<float> values;
  for (int64_t row = 0; row < rows; row++) {
    const auto row_planes = at(row);
    for (int64_t i = 0; i < columns; i++) {
      if (split == Split::mxfp4) {
        const int byte = row_planes[0][i / 2];
        values.push_back(mxfp4_value(i % 2 == 0 ? byte & 15 : byte >> 4, row_planes[1][i / 32]));
      } else {
        float scale;
        std::memcpy(&scale, row_planes[1] + i / 128 * 4, 4);
        values.push_back(fp8_value(row_planes[0][i], scale));
      }
    }
  }
  return values;
}

}  // namespace odmoe::test
