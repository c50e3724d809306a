#include "odmoe/answer_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernel_table.h"
#include "odmoe/arithmetic.h"

namespace odmoe {

void token_weights(std::span<float> out, std::span<const float> logits, float highest, float temperature,
                   const std::string& instruction_set) {
  const float divisor = std::max(temperature, std::numeric_limits<float>::min());
  cpu::choose_kernels(instruction_set)
      .exponentials(out.data(), logits.data(), static_cast<int64_t>(logits.size()), highest, divisor);
}

float log_sum_exp(std::span<const float> logits, float highest, const std::string& instruction_set) {
  const cpu::KernelTable& kernels = cpu::choose_kernels(instruction_set);
  const auto count = static_cast<int64_t>(logits.size());
  std::vector<float> weights(logits.size());
  kernels.exponentials(weights.data(), logits.data(), count, highest, 1.0f);
  return highest + logarithm(kernels.sum(weights.data(), count));
}

float logarithm(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const int32_t power = static_cast<int32_t>(bits - std::bit_cast<uint32_t>(kSqrtHalf)) >> 23;
  const float f = std::bit_cast<float>(bits - (static_cast<uint32_t>(power) << 23)) - 1.0f;
  const auto n = static_cast<float>(power);
  float q = kLogCoefficients[8];
  for (int i = 7; i >= 0; --i) q = std::fma(q, f, kLogCoefficients[i]);
  const float square = f * f;
  const float y = std::fma(n, kLn2Low, std::fma(square * f, q, -0.5f * square));
  return std::fma(n, kLn2High, f + y);
}

}  // namespace odmoe
