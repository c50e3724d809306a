#include "rope.h"

#include <bit>
#include <cmath>

namespace odmoe {
namespace {

// ln 2 in two parts; the first has 32 trailing zero bits, so that its product with a small integer is exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
// pi / 2 in three parts, the first two of 33 bits each.
constexpr double kHalfPiHigh = 0x1.921fb544p+0;
constexpr double kHalfPiMiddle = 0x1.0b4611a6p-34;
constexpr double kHalfPiLow = 0x1.3198a2e037073p-69;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
constexpr double kSquareRootOf2 = 0x1.6a09e667f3bcdp+0;

// Natural logarithm of a positive normal number: 2 atanh((m - 1) / (m + 1)) of the mantissa, plus the exponent's.
double logarithm(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52 & 0x7FF) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  if (mantissa > kSquareRootOf2) {
    mantissa *= 0.5;
    exponent++;
  }
  const double ratio = (mantissa - 1.0) / (mantissa + 1.0);
  const double square = ratio * ratio;
  double series = 0.0;
  for (int power = 23; power >= 3; power -= 2) series = (series + 1.0 / power) * square;
  const double n = exponent;
  return n * kLn2High + (n * kLn2Low + (2.0 * ratio + 2.0 * ratio * series));
}

// e^x for |x| <= 700.
double exponential(double x) {
  const double n = std::floor(x / (kLn2High + kLn2Low) + 0.5);
  const double rest = (x - n * kLn2High) - n * kLn2Low;
  double series = 1.0;
  for (int term = 16; term >= 1; term--) series = series * rest / term + 1.0;
  const auto exponent = static_cast<int64_t>(n) + 1023;
  return series * std::bit_cast<double>(static_cast<uint64_t>(exponent) << 52);
}

// Taylor series on |x| <= pi / 4; the first term left out is below 1e-17.
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

std::vector<float> rope_inverse_frequencies(double theta, int head_dim) {
  const double log_theta = logarithm(theta);
  std::vector<float> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); i++) {
    frequencies[i] = static_cast<float>(exponential(-(2.0 * static_cast<double>(i) / head_dim) * log_theta));
  }
  return frequencies;
}

void rope_row(int32_t position, const std::vector<float>& inverse_frequencies, float* cos, float* sin) {
  for (size_t i = 0; i < inverse_frequencies.size(); i++) {
    const auto angle = static_cast<float>(static_cast<double>(position) * static_cast<double>(inverse_frequencies[i]));
    cosine_and_sine(angle, &cos[i], &sin[i]);
  }
}

}  // namespace odmoe
