// The router against the reference: which experts, in which order, with which weights.
#include <algorithm>
#include <cmath>

#include "fenced_floats.h"

namespace odmoe::cuda_test {
namespace {

void compare_gates(Devices& devices, const std::string& what, const std::vector<float>& logits, int n, int experts, int k) {
  for (const bool normalize : {false, true}) {
    const size_t places = static_cast<size_t>(n) * static_cast<size_t>(k);
    std::vector<int32_t> chosen[2];
    std::vector<float> weights[2];
    // What comes to the host along with the choice: now little, now more than goes the usual way.
    const std::vector<float> hidden = random_floats(devices.random, devices.random() % 50 == 0 ? 300000 : n * 7);
    for (const int which : {0, 1}) {
      const std::shared_ptr<Backend>& backend = which == 0 ? devices.cuda : devices.reference;
      const FencedFloats from(backend, logits, 1);
      // A place behind the last shows what is written past it.
      chosen[which].assign(places + 1, -7);
      weights[which].assign(places + 1, -7.0f);
      const Floats beside(backend, hidden);
      std::vector<float> brought(hidden.size() + 1, -7.0f);
      const uint64_t bytes = normalize ? hidden.size() * sizeof(float) : 0;
      backend->router(chosen[which].data(), weights[which].data(), from.data(), n, experts, k, normalize,
                      {brought.data(), beside.data(), bytes});
      std::vector<float> expected(hidden.size() + 1, -7.0f);
      if (normalize) std::copy(hidden.begin(), hidden.end(), expected.begin());
      expect_equal(what + ": what is brought along", brought, expected);
    }
    const std::string named =
        what + ": router of " + std::to_string(k) + " out of " + std::to_string(experts) + (normalize ? ", normalized" : "");
    for (size_t i = 0; i < chosen[0].size(); ++i) {
      expect(chosen[0][i] == chosen[1][i], named + ": place " + std::to_string(i) + " is expert " + std::to_string(chosen[0][i]) +
                                               ", expected " + std::to_string(chosen[1][i]));
    }
    expect_equal(named, weights[0], weights[1]);
  }
}

std::vector<float> usual_logits(std::mt19937& random, int64_t count) {
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits(static_cast<size_t>(count));
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// Rows of logits: one NaN, all NaN, one infinite, all minus infinite, one minus infinite, so far apart that only one
// counts, denormal.
std::vector<float> strange_rows(std::mt19937& random, int experts) {
  constexpr int kRows = 7;
  std::vector<float> logits = usual_logits(random, int64_t{kRows} * experts);
  const auto row = [&](int i) { return logits.begin() + int64_t{i} * experts; };
  const int some = static_cast<int>(random() % static_cast<unsigned>(experts));
  row(0)[some] = NAN;
  std::fill(row(1), row(2), NAN);
  row(2)[some] = INFINITY;
  std::fill(row(3), row(4), -INFINITY);
  row(4)[some] = -INFINITY;
  for (int e = 0; e < experts; ++e) row(5)[e] *= 1e30f;
  for (int e = 0; e < experts; ++e) row(6)[e] *= 0x1p-145f;
  return logits;
}

}  // namespace

void test_router(Devices& devices) {
  for (const int experts : {1, 2, 8, 31, 32, 33, 60, 128, 257, 1024}) {
    for (const int wanted : {1, 2, 4, 8, 33, experts}) {
      if (wanted > experts || (wanted == 1024 && experts == 1024)) continue;
      constexpr int kRows = 5;
      std::vector<float> logits = usual_logits(devices.random, int64_t{kRows} * experts);
      compare_gates(devices, "usual logits", logits, kRows, experts, wanted);
      for (float& logit : logits) logit = std::round(logit);
      compare_gates(devices, "ties", logits, kRows, experts, wanted);
      compare_gates(devices, "strange logits", strange_rows(devices.random, experts), 7, experts, wanted);
    }
  }
  compare_gates(devices, "all experts", usual_logits(devices.random, 1024), 1, 1024, 1024);
}

}  // namespace odmoe::cuda_test
