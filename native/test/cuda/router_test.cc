// The router against the reference: the experts, their order and their weights.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "fenced_floats.h"

namespace odmoe::cuda_test {
namespace {

// A shape of router, with the contents of its vectors.
struct Router {
  RouterShape shape;
  std::vector<float> choice_bias;
  std::vector<float> expert_scale;
  std::vector<int32_t> given;  // of each row; empty: the scores choose
};

Router drawn(Devices& devices, RouterShape shape, int experts) {
  Router router;
  router.shape = shape;
  if (shape.choice_bias) router.choice_bias = random_floats(devices.random, experts);
  if (shape.expert_scale) router.expert_scale = random_floats(devices.random, experts);
  return router;
}

void compare_choices(Devices& devices, const std::string& what, const Router& router, const std::vector<float>& logits, int n,
                     int experts, int k) {
  const size_t places = static_cast<size_t>(n) * static_cast<size_t>(k);
  std::vector<int32_t> chosen[2];
  std::vector<float> weights[2];
  std::vector<float> scores[2];
  // Data that comes to the host along with the choice: nothing, little, or more than fits the usual path.
  const std::vector<float> hidden = random_floats(devices.random, devices.random() % 50 == 0 ? 300000 : n * 7);
  const bool brings = devices.random() % 2 == 0;
  std::vector<float> given_bits(router.given.size());
  if (!given_bits.empty()) std::memcpy(given_bits.data(), router.given.data(), router.given.size() * sizeof(int32_t));
  for (const int which : {0, 1}) {
    const std::shared_ptr<Backend>& backend = which == 0 ? devices.cuda : devices.reference;
    const FencedFloats from(backend, logits, 1);
    const FencedFloats bias(backend, router.choice_bias, 0);
    const FencedFloats scale(backend, router.expert_scale, 0);
    // A place behind the last one shows writes past the end.
    chosen[which].assign(places + 1, -7);
    weights[which].assign(places + 1, -7.0f);
    scores[which].assign(logits.size() + 1, -7.0f);
    std::vector<float> all_logits(logits.size() + 1, -7.0f);
    const Floats beside(backend, hidden);
    std::vector<float> brought(hidden.size() + 1, -7.0f);
    RouterWork work;
    work.host_experts = chosen[which].data();
    work.host_weights = weights[which].data();
    work.logits = from.data();
    work.n = n;
    work.experts = experts;
    work.k = k;
    work.shape = router.shape;
    work.choice_bias = router.choice_bias.empty() ? nullptr : bias.data();
    work.expert_scale = router.expert_scale.empty() ? nullptr : scale.data();
    work.along = {brought.data(), beside.data(), brings ? hidden.size() * sizeof(float) : 0};
    work.host_logits = all_logits.data();
    const Floats given(backend, given_bits);
    if (!given_bits.empty()) work.given = reinterpret_cast<const int32_t*>(given.data());
    if (router.shape.score != RouterScore::sparsemixer) work.host_scores = scores[which].data();
    backend->router(work);
    std::vector<float> all_expected(logits);
    all_expected.push_back(-7.0f);
    expect_equal(what + ": all logits", all_logits, all_expected);
    std::vector<float> expected(hidden.size() + 1, -7.0f);
    if (brings) std::copy(hidden.begin(), hidden.end(), expected.begin());
    expect_equal(what + ": what is brought along", brought, expected);
  }
  const std::string named = what + ": router of " + std::to_string(k) + " out of " + std::to_string(experts) + ", score " +
                            std::to_string(static_cast<int>(router.shape.score)) + ", groups " +
                            std::to_string(router.shape.groups_kept) + " of " + std::to_string(router.shape.groups) +
                            (router.shape.normalize ? ", normalized" : "");
  for (size_t i = 0; i < chosen[0].size(); ++i) {
    expect(chosen[0][i] == chosen[1][i], named + ": place " + std::to_string(i) + " is expert " + std::to_string(chosen[0][i]) +
                                             ", expected " + std::to_string(chosen[1][i]));
  }
  expect_equal(named, weights[0], weights[1]);
  expect_equal(named + ": all scores", scores[0], scores[1]);
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

// Usual logits, logits with many equal values, and special ones.
void compare_kinds(Devices& devices, const RouterShape& shape, int experts, int k) {
  constexpr int kRows = 5;
  std::vector<float> logits = usual_logits(devices.random, int64_t{kRows} * experts);
  compare_choices(devices, "usual logits", drawn(devices, shape, experts), logits, kRows, experts, k);
  for (float& logit : logits) logit = std::round(logit);
  Router router = drawn(devices, shape, experts);
  for (float& bias : router.choice_bias) bias = std::round(bias);
  compare_choices(devices, "ties", router, logits, kRows, experts, k);
  compare_choices(devices, "strange logits", drawn(devices, shape, experts), strange_rows(devices.random, experts), 7, experts, k);
  // An expert whose bias is not a number is chosen last.
  if (shape.choice_bias) router.choice_bias[static_cast<size_t>(experts) / 2] = NAN;
  compare_choices(devices, "a bias that is no number", router, logits, kRows, experts, k);
}

// A table's experts, in an order of their own in each row.
void compare_given(Devices& devices, const RouterShape& shape, int experts, int k) {
  constexpr int kRows = 5;
  Router router = drawn(devices, shape, experts);
  std::vector<int32_t> order(static_cast<size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  for (int row = 0; row < kRows; ++row) {
    std::shuffle(order.begin(), order.end(), devices.random);
    router.given.insert(router.given.end(), order.begin(), order.begin() + k);
  }
  compare_choices(devices, "experts by token", router, usual_logits(devices.random, int64_t{kRows} * experts), kRows, experts, k);
}

RouterShape shape_of(RouterScore score, bool normalize) {
  RouterShape shape;
  shape.score = score;
  shape.normalize = normalize;
  shape.jitter = 0.01f;
  return shape;
}

// DeepSeek-V3's, GLM-4.5's, and others of its kind.
RouterShape grouped(RouterScore score, int groups, int kept, GroupScore group_score, bool biased) {
  RouterShape shape = shape_of(score, biased);
  shape.groups = groups;
  shape.groups_kept = kept;
  shape.group_score = group_score;
  shape.choice_bias = biased;
  shape.sum_epsilon = biased ? 1e-20f : 0.0f;
  shape.scale = 2.5f;
  return shape;
}

}  // namespace

void test_router(Devices& devices) {
  for (const int experts : {1, 2, 8, 31, 32, 33, 60, 128, 257, 1024}) {
    for (const int wanted : {1, 2, 4, 8, 33, experts}) {
      if (wanted > experts || (wanted == 1024 && experts == 1024)) continue;
      for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid, RouterScore::sqrt_softplus}) {
        for (const bool normalize : {false, true}) {
          compare_kinds(devices, shape_of(score, normalize), experts, wanted);
          compare_given(devices, shape_of(score, normalize), experts, wanted);
        }
      }
    }
    if (experts >= 2) compare_kinds(devices, shape_of(RouterScore::sparsemixer, false), experts, 2);
    RouterShape floored = shape_of(RouterScore::softmax, true);
    floored.choice_bias = floored.expert_scale = true;
    floored.sum_floor = 0.3f;
    compare_kinds(devices, floored, experts, std::min(experts, 6));
  }
  for (const GroupScore group_score : {GroupScore::best, GroupScore::best_two}) {
    for (const bool biased : {false, true}) {
      for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
        compare_kinds(devices, grouped(score, 8, 4, group_score, biased), 256, 8);
        compare_kinds(devices, grouped(score, 4, 1, group_score, biased), 16, 3);
        compare_kinds(devices, grouped(score, 5, 3, group_score, biased), 35, 21);
        compare_kinds(devices, grouped(score, 40, 7, group_score, biased), 40, 7);
        compare_kinds(devices, grouped(score, 3, 3, group_score, biased), 9, 2);
      }
    }
  }
  const Router plain = drawn(devices, shape_of(RouterScore::softmax, true), 1024);
  compare_choices(devices, "all experts", plain, usual_logits(devices.random, 1024), 1, 1024, 1024);
}

}  // namespace odmoe::cuda_test
