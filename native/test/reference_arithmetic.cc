#include "reference_arithmetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "odmoe/arithmetic.h"

namespace odmoe::test {
namespace {

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

float of_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

std::vector<float> padded(const std::vector<float>& x, size_t multiple) {
  std::vector<float> longer = x;
  while (longer.size() % multiple != 0) longer.push_back(0.0f);
  return longer;
}

float greatest_magnitude(const std::vector<float>& row, size_t begin, size_t end) {
  float most = 0.0f;
  for (size_t i = begin; i < end; ++i) {
    if (!std::isnan(row[i])) most = std::fmax(most, std::fabs(row[i]));
  }
  return most;
}

StoredRow store_int8(const std::vector<float>& row) {
  StoredRow stored;
  stored.scale = greatest_magnitude(row, 0, row.size()) / 127.0f;
  for (const float w : row) {
    float integer = 0.0f;
    if (stored.scale != 0.0f && !std::isnan(w / stored.scale)) {
      integer = std::nearbyintf(std::fmin(127.0f, std::fmax(-127.0f, w / stored.scale)));
    }
    stored.values.push_back(integer);
  }
  return stored;
}

StoredRow store_nf4(const std::vector<float>& row) {
  StoredRow stored;
  for (size_t begin = 0; begin < row.size(); begin += kNf4Block) {
    const size_t end = std::min(row.size(), begin + kNf4Block);
    const float scale = greatest_magnitude(row, begin, end);
    for (size_t i = begin; i < begin + kNf4Block; ++i) {
      int code = kNf4Zero;
      if (i < end && scale != 0.0f && !std::isnan(row[i] / scale)) {
        code = 0;
        // The nearest value; on a tie the lower.
        for (int c = 1; c < 16; ++c) {
          const double x = row[i] / scale;
          const double middle = static_cast<float>((double{kNf4Values[c - 1]} + double{kNf4Values[c]}) / 2);
          if (x > middle) code = c;
        }
      }
      stored.values.push_back(kNf4Values[code] * scale);
    }
  }
  stored.values.resize((row.size() + kLanes - 1) / kLanes * kLanes);
  return stored;
}

}  // namespace

float reference_fold(const std::vector<float>& partial) {
  std::vector<float> tree = partial;
  for (int apart = kLanes / 2; apart > 0; apart /= 2) {
    for (int i = 0; i < apart; ++i) tree[i] = tree[i] + tree[i + apart];
  }
  return tree[0];
}

float reference_dot(const std::vector<float>& x, const std::vector<float>& w) {
  const std::vector<float> a = padded(x, kLanes);
  const std::vector<float> b = padded(w, kLanes);
  std::vector<float> partial(kLanes, 0.0f);
  for (size_t k = 0; k < a.size(); ++k) partial[k % kLanes] = std::fma(a[k], b[k], partial[k % kLanes]);
  return reference_fold(partial);
}

float reference_sum(const std::vector<float>& x) {
  const std::vector<float> a = padded(x, kLanes);
  std::vector<float> partial(kLanes, 0.0f);
  for (size_t k = 0; k < a.size(); ++k) partial[k % kLanes] = partial[k % kLanes] + a[k];
  return reference_fold(partial);
}

float reference_exp(float x) {
  if (std::isnan(x)) return x;
  x = std::fmax(kExpLowest, std::fmin(kExpHighest, x));
  const float t = std::fma(x, kLog2E, kRoundMagic);
  const float n = t - kRoundMagic;
  float r = std::fma(n, -kLn2High, x);
  r = std::fma(n, -kLn2Low, r);
  float q = kExpCoefficients[4];
  for (int i = 3; i >= 0; --i) q = std::fma(q, r, kExpCoefficients[i]);
  const float y = 1.0f + std::fma(q * r, r, r);
  const int power = static_cast<int>(n);
  const int half = power >= 0 ? power / 2 : -((-power + 1) / 2);
  return y * std::ldexp(1.0f, half) * std::ldexp(1.0f, power - half);
}

float reference_log(float x) {
  int power = 0;
  float mantissa = std::frexp(x, &power);  // from 1/2 to 1
  if (mantissa < kSqrtHalf) {
    mantissa = mantissa * 2.0f;
    power--;
  }
  const float f = mantissa - 1.0f;
  float q = kLogCoefficients[8];
  for (int i = 7; i >= 0; --i) q = std::fma(q, f, kLogCoefficients[i]);
  const float square = f * f;
  const float inner = std::fma(square * f, q, -0.5f * square);
  const float y = std::fma(static_cast<float>(power), kLn2Low, inner);
  return std::fma(static_cast<float>(power), kLn2High, f + y);
}

float reference_sigmoid(float x) { return 1.0f / (1.0f + reference_exp(-x)); }
float reference_silu(float x) { return x / (1.0f + reference_exp(-x)); }

float reference_tanh(float x) {
  const float t = reference_exp(-2.0f * std::fabs(x));
  return std::copysign((1.0f - t) / (1.0f + t), x);
}

float reference_softplus(float x) {
  if (std::isnan(x) || x > kSoftplusLinear) return x;
  const float e = reference_exp(x);
  const float u = 1.0f + e;
  return reference_log(u) + (e - (u - 1.0f)) / u;
}

float reference_limited(float x, float limit) {
  const float below = x > limit ? limit : x;
  return below < -limit ? -limit : below;
}

float reference_glu(float gate, float up, const GluShape& shape) {
  if (shape.limit > 0.0f) {
    if (!shape.limits_activation) gate = gate > shape.limit ? shape.limit : gate;
    up = reference_limited(up, shape.limit);
  }
  const auto activated = [&] {
    if (shape.activation == Activation::sigmoid) return gate / (1.0f + reference_exp(-(shape.alpha * gate)));
    const float t = std::fma(kGeluCubic * gate * gate, gate, gate) * kGeluScale;
    return 0.5f * gate * (1.0f + reference_tanh(t));
  };
  float factor = activated();
  if (shape.limit > 0.0f && shape.limits_activation) factor = factor > shape.limit ? shape.limit : factor;
  if (shape.activation == Activation::sigmoid && shape.up_offset != 0.0f) up = up + shape.up_offset;
  return factor * up;
}

float reference_of_half(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int mantissa = half & 1023;
  double value = 0;
  if (exponent == 31) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else {
    value = std::ldexp(1024 + mantissa, exponent - 25);
  }
  return static_cast<float>(half & 0x8000 ? -value : value);
}

uint16_t reference_to_half(float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return sign | 0x7e00;
  // Finds the greatest half not above |x|, then takes the nearer of it and the next, or the even one on a tie.
  const double magnitude = std::fabs(double{x});
  uint16_t below = 0;
  for (uint16_t step = 0x4000; step != 0; step >>= 1) {
    const uint16_t candidate = below | step;
    if (candidate < 0x7c00 && double{reference_of_half(candidate)} <= magnitude) below = candidate;
  }
  const double low = reference_of_half(below);
  const double high = below == 0x7bff ? 65536.0 : double{reference_of_half(below + 1)};
  const bool up = magnitude - low > high - magnitude || (magnitude - low == high - magnitude && below % 2 == 1);
  return sign | static_cast<uint16_t>(below + (up ? 1 : 0));
}

uint16_t reference_to_bf16(float x) {
  const uint32_t bits = bits_of(x);
  if (std::isnan(x)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  const uint32_t rest = bits & 0xffff;
  const uint32_t kept = bits >> 16;
  const bool up = rest > 0x8000 || (rest == 0x8000 && kept % 2 == 1);
  return static_cast<uint16_t>(kept + (up ? 1 : 0));
}

float reference_of_bf16(uint16_t bits) { return of_bits(static_cast<uint32_t>(bits) << 16); }

StoredRow reference_store(WeightFormat format, const std::vector<float>& row) {
  if (format == WeightFormat::int8) return store_int8(row);
  if (format == WeightFormat::nf4) return store_nf4(row);
  StoredRow stored;
  for (const float w : row) {
    stored.values.push_back(format == WeightFormat::bf16   ? reference_of_bf16(reference_to_bf16(w))
                            : format == WeightFormat::fp16 ? reference_of_half(reference_to_half(w))
                                                           : w);
  }
  return stored;
}

std::vector<float> reference_attention(const std::vector<float>& query, const std::vector<std::vector<float>>& keys,
                                       const std::vector<std::vector<float>>& values, int begin, int end, float score_scale,
                                       const float* sink) {
  const size_t value_dim = values[static_cast<size_t>(begin)].size();
  std::vector<float> scores(static_cast<size_t>(end));
  float most = -std::numeric_limits<float>::infinity();
  for (int p = begin; p < end; ++p) {
    scores[p] = reference_dot(query, keys[p]) * score_scale;
    if (scores[p] > most) most = scores[p];
  }
  if (sink != nullptr && *sink > most) most = *sink;
  std::vector<float> out(value_dim, 0.0f);
  float denominator = 0.0f;
  for (int chunk = begin / kAttentionChunk * kAttentionChunk; chunk < end; chunk += kAttentionChunk) {
    std::vector<float> weights(kAttentionChunk, 0.0f);
    std::vector<float> sums(value_dim, 0.0f);
    for (int p = std::max(begin, chunk); p < std::min(end, chunk + kAttentionChunk); ++p) {
      const float weight = reference_exp(scores[p] - most);
      weights[p - chunk] = weight;
      for (size_t d = 0; d < value_dim; ++d) sums[d] = std::fma(weight, values[p][d], sums[d]);
    }
    denominator = denominator + reference_sum(weights);
    for (size_t d = 0; d < value_dim; ++d) out[d] = out[d] + sums[d];
  }
  if (sink != nullptr) denominator = denominator + reference_exp(*sink - most);
  for (float& value : out) value = value / denominator;
  return out;
}

}  // namespace odmoe::test
