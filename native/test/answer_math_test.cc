// Tests the functions that turn logits into an answer, against the one arithmetic and against double precision.
#include "odmoe/answer_math.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../src/runtime/query_scale.h"
#include "native_tests.h"
#include "odmoe/arithmetic.h"
#include "reference_arithmetic.h"

namespace odmoe::test {
namespace {

constexpr size_t kSizes[] = {1, 7, 31, 32, 33, 100, 32000};

void weighs_tokens(const std::string& set) {
  for (const size_t size : kSizes) {
    auto logits = random_values(size, 11, 6.0f);
    if (size > 7) logits[3] = -std::numeric_limits<float>::infinity();
    const float highest = *std::max_element(logits.begin(), logits.end());
    for (const float temperature : {1.0f, 0.7f, 1000.0f, 1e-30f, 0.0f}) {
      const float divisor = std::max(temperature, std::numeric_limits<float>::min());
      std::vector<float> weights(size);
      token_weights(weights, logits, highest, temperature, set);
      std::vector<float> expected;
      for (const float logit : logits) expected.push_back(reference_exp((logit - highest) / divisor));
      check_same(weights, expected, "weights at temperature " + std::to_string(temperature));
      check(*std::max_element(weights.begin(), weights.end()) == 1.0f, "the most likely token weighs 1");
      if (size > 7) check(weights[3] == 0.0f, "a token that is never chosen weighs something");
    }
  }
}

void sums_exponentials(const std::string& set) {
  for (const size_t size : kSizes) {
    const auto logits = random_values(size, 12, 6.0f);
    const float highest = *std::max_element(logits.begin(), logits.end());
    std::vector<float> weights;
    double exact = 0;
    for (const float logit : logits) {
      weights.push_back(reference_exp(logit - highest));
      exact += std::exp(static_cast<double>(logit) - static_cast<double>(highest));
    }
    const float expected = highest + reference_log(reference_sum(weights));
    const float actual = log_sum_exp(logits, highest, set);
    check_same(&actual, &expected, 1, "log of the sum of " + std::to_string(size));
    check(std::fabs(static_cast<double>(actual) - (static_cast<double>(highest) + std::log(exact))) < 1e-5,
          "far from the true one");
  }
}

// The logarithm is within two units in the last place, over all exponents, and also near 1, where it is small.
void log_is_close() {
  const auto compare = [](float x) {
    const float actual = logarithm(x);
    const float reference = reference_log(x);
    check_same(&actual, &reference, 1, "log(" + std::to_string(x) + ")");
    const double exact = std::log(static_cast<double>(x));
    const double unit = exact == 0 ? 0x1p-149 : std::ldexp(1.0, std::ilogb(exact) - 23);
    check(std::fabs(actual - exact) <= 2.0 * unit, "log(" + std::to_string(x) + ") is off by more than two units");
  };
  for (float x = std::numeric_limits<float>::min(); x < 3e38f; x *= 1.0009f) compare(x);
  for (float x = 0.6f; x < 1.6f; x += 0.00001f) compare(x);
  for (const float x : {1.0f, kSqrtHalf, std::nextafter(kSqrtHalf, 0.0f), std::nextafter(1.0f, 0.0f), std::nextafter(1.0f, 2.0f)}) {
    compare(x);
  }
  check(logarithm(1.0f) == 0.0f, "log(1)");
}

// Queries' factors are within a unit in the last place, and 1 below the first length.
void scales_queries() {
  const QueryScale scale{0.1f, 100};
  const std::vector<int32_t> positions = {0, 1, 99, 100, 199, 200, 8191, 1048575};
  const std::vector<float> factors = query_factors(scale, positions);
  check(factors.size() == positions.size(), "not one factor for each position");
  for (size_t i = 0; i < positions.size(); i++) {
    const double lengths = std::floor(positions[i] / 100.0);
    const double exact = 1.0 + static_cast<double>(scale.beta) * std::log(1.0 + lengths);
    check(std::fabs(factors[i] - exact) < 2.4e-7, "the factor of position " + std::to_string(positions[i]));
    check((factors[i] == 1.0f) == (positions[i] < 100), "position " + std::to_string(positions[i]) + " and the factor 1");
  }
}

}  // namespace

void add_answer_math_cases(std::vector<Case>& cases) {
  cases.push_back({"log: close to the true one", log_is_close});
  cases.push_back({"factors of queries: close to the true ones", scales_queries});
  for (const std::string& set : instruction_sets()) {
    cases.push_back({"token weights " + set + ": equal the one arithmetic", [=] { weighs_tokens(set); }});
    cases.push_back({"log-sum-exp " + set + ": equals the one arithmetic", [=] { sums_exponentials(set); }});
  }
}

}  // namespace odmoe::test
