#include "rope.h"

#include <cmath>
#include <string>

#include "odmoe/error.h"

namespace odmoe {
namespace {

// pi / 2 in three parts, the first two of 33 bits each.
constexpr double kHalfPiHigh = 0x1.921fb544p+0;
constexpr double kHalfPiMiddle = 0x1.0b4611a6p-34;
constexpr double kHalfPiLow = 0x1.3198a2e037073p-69;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

// Taylor series on |x| <= pi / 4; the first omitted term is below 1e-17.
double sine_near_zero(double x) {
  const double square = x * x;
  double series = 0.0;
  for (int power = 17; power >= 3; power -= 2) series = (1.0 - series) * square / (power * (power - 1));
  return x - x * series;
}

double cosine_near_zero(double x) {
  const double square = x * x;
  double series = 0.0;
  for (int power = 18; power >= 2; power -= 2) series = (1.0 - series) * square / (power * (power - 1));
  return 1.0 - series;
}

void cosine_and_sine(double angle, float* cos, float* sin) {
  const double quarters = std::floor(angle * kTwoOverPi + 0.5);
  const double rest = ((angle - quarters * kHalfPiHigh) - quarters * kHalfPiMiddle) - quarters * kHalfPiLow;
  const double c = cosine_near_zero(rest);
  const double s = sine_near_zero(rest);
  switch (static_cast<int64_t>(quarters) & 3) {
    case 0:
      *cos = static_cast<float>(c);
      *sin = static_cast<float>(s);
      break;
    case 1:
      *cos = static_cast<float>(-s);
      *sin = static_cast<float>(c);
      break;
    case 2:
      *cos = static_cast<float>(-c);
      *sin = static_cast<float>(-s);
      break;
    default: *cos = static_cast<float>(s); *sin = static_cast<float>(-c);
  }
}

}  // namespace

void check_rotations(const ModelShape& shape) {
  if (shape.max_positions > kMaxRopePosition) {
    throw Error(ErrorCode::model_unsupported, "a context of " + std::to_string(shape.max_positions) +
                                                  " positions; the rotary embedding is exact up to " +
                                                  std::to_string(kMaxRopePosition));
  }
  for (const RopeShape& rope : shape.ropes) {
    for (const float frequency : rope.frequencies) {
      if (static_cast<double>(std::fabs(frequency)) * shape.max_positions <= kMaxRopePosition) continue;
      throw Error(ErrorCode::model_unsupported, "a rotary frequency of " + std::to_string(frequency) + " over " +
                                                    std::to_string(shape.max_positions) + " positions; angles are exact up to " +
                                                    std::to_string(kMaxRopePosition));
    }
  }
}

void rope_row(int32_t position, const RopeShape& rope, float* cos, float* sin) {
  for (size_t i = 0; i < rope.frequencies.size(); i++) {
    const auto angle = static_cast<float>(static_cast<double>(position) * static_cast<double>(rope.frequencies[i]));
    cosine_and_sine(angle, &cos[i], &sin[i]);
    cos[i] *= rope.scale;
    sin[i] *= rope.scale;
  }
}

}  // namespace odmoe
