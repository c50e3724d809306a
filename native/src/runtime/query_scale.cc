#include "query_scale.h"

#include "odmoe/answer_math.h"

namespace odmoe {

std::vector<float> query_factors(const QueryScale& scale, std::span<const int32_t> positions) {
  std::vector<float> factors;
  factors.reserve(positions.size());
  for (const int32_t position : positions) {
    const float lengths = 1.0f + static_cast<float>(position / scale.length);
    const float product = scale.beta * logarithm(lengths);
    factors.push_back(1.0f + product);
  }
  return factors;
}

}  // namespace odmoe
