// The router against the one arithmetic: scores, groups, ties, sparsemixer, logits that are NaN or infinite.
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "native_tests.h"
#include "reference_operators.h"

namespace odmoe::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct RouterCase {
  std::string name;
  RouterShape shape;
  int experts;
  int k;
};

std::vector<RouterCase> router_cases() {
  std::vector<RouterCase> cases;
  for (const int experts : {1, 2, 8, 33, 60, 128, 512}) {
    for (const int k : {1, 2, 6, 8}) {
      if (k > experts) continue;
      for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid, RouterScore::sqrt_softplus}) {
        RouterShape shape;
        shape.score = score;
        cases.push_back({"plain", shape, experts, k});
        shape.normalize = true;
        cases.push_back({"normalized", shape, experts, k});
        shape.sum_epsilon = 1e-20f;
        shape.scale = 2.5f;
        shape.choice_bias = true;
        cases.push_back({"biased", shape, experts, k});
        shape.sum_epsilon = 0;
        shape.sum_floor = 0.3f;
        shape.expert_scale = true;
        cases.push_back({"scaled by expert", shape, experts, k});
        shape.choice_bias = false;
        shape.by_token = true;
        cases.push_back({"given by token", shape, experts, k});
      }
    }
  }
  struct Groups {
    int experts;
    int groups;
    int kept;
    int k;
  };
  for (const Groups groups :
       {Groups{256, 8, 4, 8}, Groups{64, 8, 3, 6}, Groups{40, 5, 2, 9}, Groups{16, 16, 5, 5}, Groups{12, 3, 3, 12}}) {
    for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
      for (const GroupScore group_score : {GroupScore::best, GroupScore::best_two}) {
        RouterShape shape;
        shape.score = score;
        shape.groups = groups.groups;
        shape.groups_kept = groups.kept;
        shape.group_score = group_score;
        shape.choice_bias = score == RouterScore::sigmoid;
        cases.push_back({"grouped", shape, groups.experts, groups.k});
      }
    }
  }
  for (const int experts : {2, 3, 16, 33}) {
    RouterShape shape;
    shape.score = RouterScore::sparsemixer;
    shape.jitter = 0.01f;
    cases.push_back({"sparsemixer", shape, experts, 2});
    shape.jitter = 0.3f;
    cases.push_back({"wide sparsemixer", shape, experts, 2});
  }
  return cases;
}

// Rows of random logits, with ties, with logits far apart, and with NaN and infinities.
std::vector<float> router_logits(int n, int experts) {
  auto logits = random_values(static_cast<size_t>(n * experts), 8, 3.0f);
  const auto row = [&](int i) { return logits.begin() + i * experts; };
  std::fill(row(0), row(1), 1.5f);
  for (int e = 0; e + 1 < experts; ++e) row(1)[e] = -300.0f + static_cast<float>(e);
  std::fill(row(2), row(3), kNan);
  row(3)[experts / 2] = kNan;
  row(4)[experts - 1] = kInfinity;
  std::fill(row(5), row(6), -kInfinity);
  row(6)[0] = -kInfinity;
  for (int e = 0; e < experts; ++e) row(7)[e] = static_cast<float>(e % 3) - 1.0f;
  for (int e = 0; e < experts; ++e) row(8)[e] = e % 2 == 0 ? 0.0f : -0.0f;
  std::fill(row(9), row(10), kInfinity);
  return logits;
}

// n rows of k experts of a table, each row with others, none twice in a row.
std::vector<int32_t> given_experts(int n, int experts, int k) {
  std::vector<int32_t> given;
  for (int i = 0; i < n; ++i) {
    for (int rank = 0; rank < k; ++rank) given.push_back((7 * i + experts - rank) % experts);
  }
  return given;
}

void chooses(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  const int n = 70;
  for (const RouterCase& test : router_cases()) {
    const auto logits = router_logits(n, test.experts);
    const auto size = static_cast<size_t>(test.experts);
    const auto bias = test.shape.choice_bias ? random_values(size, 9, 0.2f) : std::vector<float>();
    const auto scale = test.shape.expert_scale ? random_values(size, 10) : std::vector<float>();
    DeviceFloats in(*backend, logits);
    DeviceFloats device_bias(*backend, bias);
    DeviceFloats device_scale(*backend, scale);
    std::vector<int32_t> experts(static_cast<size_t>(n * test.k), -7);
    std::vector<float> weights(experts.size());
    RouterWork work{experts.data(), weights.data(), in.data(), n, test.experts, test.k, test.shape, nullptr, nullptr, nullptr, {}};
    if (!bias.empty()) work.choice_bias = device_bias.data();
    if (!scale.empty()) work.expert_scale = device_scale.data();
    const auto given = test.shape.by_token ? given_experts(n, test.experts, test.k) : std::vector<int32_t>();
    std::vector<float> given_bits(given.size());
    if (!given.empty()) std::memcpy(given_bits.data(), given.data(), given.size() * sizeof(int32_t));
    DeviceFloats device_given(*backend, given_bits);
    if (!given.empty()) work.given = reinterpret_cast<const int32_t*>(device_given.data());
    const bool has_scores = test.shape.score != RouterScore::sparsemixer;
    std::vector<float> all_logits(logits.size());
    std::vector<float> all_scores(logits.size());
    work.host_logits = all_logits.data();
    if (has_scores) work.host_scores = all_scores.data();
    backend->router(work);
    check_same(all_logits.data(), logits.data(), logits.size(), std::string("logits, ") + test.name);
    for (int i = 0; i < n; ++i) {
      const std::vector<float> row(logits.begin() + i * test.experts, logits.begin() + (i + 1) * test.experts);
      std::vector<int32_t> given_row;
      if (!given.empty()) given_row.assign(given.begin() + i * test.k, given.begin() + (i + 1) * test.k);
      const Choice expected = reference_router(row, test.k, test.shape, bias, scale, given_row);
      const std::string what =
          test.name + ", " + std::to_string(test.k) + " of " + std::to_string(test.experts) + ", row " + std::to_string(i);
      const std::vector<int32_t> got(experts.begin() + i * test.k, experts.begin() + (i + 1) * test.k);
      check(got == expected.experts, "experts, " + what);
      check_same(weights.data() + i * test.k, expected.weights.data(), expected.weights.size(), "weights, " + what);
      check_same(all_scores.data() + i * test.experts, expected.scores.data(), expected.scores.size(), "scores, " + what);
      check(std::set<int32_t>(got.begin(), got.end()).size() == got.size(), "an expert is chosen twice, " + what);
    }
  }
}

void brings_along_and_refuses(const std::string& set) {
  auto backend = open_backend(set);
  DeviceFloats logits(*backend, std::vector<float>(8, kNan));
  DeviceFloats beside(*backend, std::vector<float>{1, 2, 3});
  float brought[4] = {0, 0, 0, 0};
  int32_t experts[2] = {-7, -7};
  float weights[2];
  RouterWork work{
      experts, weights, logits.data(), 1, 8, 2, {}, nullptr, nullptr, nullptr, {brought, beside.data(), 2 * sizeof(float)}};
  backend->router(work);
  check(brought[0] == 1.0f && brought[1] == 2.0f && brought[2] == 0.0f, "a copy comes along");
  check(experts[0] == 0 && experts[1] == 1, "NaN logits still name experts");
  work.experts = 1;
  check_refused(ErrorCode::model_unsupported, [&] { backend->router(work); });
  work.experts = 1 << 20;
  check_refused(ErrorCode::model_unsupported, [&] { backend->router(work); });
  work.experts = 8;
  work.shape.groups = 8;
  check_refused(ErrorCode::model_unsupported, [&] { backend->router(work); });
  work.shape.groups = 1;
  work.shape.score = RouterScore::sparsemixer;
  backend->router(work);
  work.given = experts;
  check_refused(ErrorCode::model_unsupported, [&] { backend->router(work); });
  work.given = nullptr;
  float scores[8];
  work.host_scores = scores;
  check_refused(ErrorCode::model_unsupported, [&] { backend->router(work); });
}

// A case computed by hand: the second weight leaves out the first expert, and experts too far from the second logit.
void sparsemixer_by_hand() {
  RouterShape shape;
  shape.score = RouterScore::sparsemixer;
  shape.jitter = 0.1f;
  const Choice choice = reference_router({10.0f, 9.0f, 7.5f, -10.0f}, 2, shape, {}, {});
  check(choice.experts == std::vector<int32_t>{0, 1}, "experts");
  check(std::fabs(choice.weights[0] - 1 / (1 + std::exp(-1.0))) < 1e-6, "the first weight");
  check(std::fabs(choice.weights[1] - 1 / (1 + std::exp(-1.5))) < 1e-6, "the second weight");
}

}  // namespace

void add_router_cases(std::vector<Case>& cases) {
  cases.push_back({"router: sparsemixer by hand", sparsemixer_by_hand});
  for (const std::string& set : instruction_sets()) {
    for (const int threads : {1, 3}) {
      cases.push_back({"router " + set + ": equals the one arithmetic, " + std::to_string(threads) + " threads",
                       [=] { chooses(set, threads); }});
    }
    cases.push_back({"router " + set + ": brings a copy along and refuses what cannot be", [=] { brings_along_and_refuses(set); }});
  }
}

}  // namespace odmoe::test
