// Tests trained maps from the residual stream to experts: what they foretell, and that training and inference have the same bits everywhere.
#include "odmoe/expert_maps.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "native_tests.h"

namespace odmoe::test {
namespace {

// Sizes that fill no vector, no block of columns and no tile.
constexpr int kHidden = 37;
constexpr int kExperts = 7;
constexpr int kChosen = 2;
constexpr int kUnits = 19;
constexpr int kTokens = 700;
const ExpertMapsShape kShape{kHidden, kExperts, kUnits, 2, {0, 1}};

// Each token's experts are those for which a random direction is nearest to its state, other directions for each distance.
struct Task {
  explicit Task(uint32_t seed = 1) : states(random_values(size_t{kTokens} * kHidden, seed, 3.0f)) {
    for (const uint32_t distance : {0u, 1u}) choices.push_back(nearest(random_values(size_t{kExperts} * kHidden, 50 + distance)));
  }

  std::vector<int32_t> nearest(const std::vector<float>& directions) const {
    std::vector<int32_t> chosen;
    for (size_t token = 0; token < kTokens; ++token) {
      std::vector<double> values(kExperts);
      for (size_t i = 0; i < size_t{kExperts} * kHidden; ++i) {
        values[i / kHidden] += double{states[token * kHidden + i % kHidden]} * double{directions[i]};
      }
      std::vector<int32_t> order(kExperts);
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(),
                [&](int32_t a, int32_t b) { return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)]; });
      chosen.insert(chosen.end(), order.begin(), order.begin() + kChosen);
    }
    return chosen;
  }

  MapTraining training(int epochs, int threads = 1, const std::string& set = "auto") const {
    MapTraining training;
    training.hidden_size = kHidden;
    training.experts = kExperts;
    training.experts_per_token = kChosen;
    training.units = kUnits;
    training.states = states;
    for (const std::vector<int32_t>& chosen : choices) training.choices.emplace_back(chosen);
    training.epochs = epochs;
    training.seed = 5;
    training.threads = threads;
    training.instruction_set = set;
    return training;
  }

  std::vector<float> states;
  std::vector<std::vector<int32_t>> choices;
};

LayerMaps train(const MapTraining& training) {
  const std::atomic<bool> cancelled = false;
  return train_expert_maps(
      training, [](int, double) {}, cancelled);
}

// Maps of both layers; the last layer has one distance.
ExpertMaps maps_of(const LayerMaps& first, const std::string& set = "auto") {
  LayerMaps last = first;
  last.heads.resize(size_t{kExperts} * kUnits);
  last.head_scales.resize(kExperts);
  last.biases.resize(kExperts);
  return ExpertMaps(kShape, std::vector<LayerMaps>{first, last}, set);
}

bool are_same(const LayerMaps& a, const LayerMaps& b) {
  return a.units == b.units && a.unit_scales == b.unit_scales && a.heads == b.heads && a.head_scales == b.head_scales &&
         a.biases == b.biases;
}

// The share of the chosen experts that are among the most probable ones.
double recall(const Task& task, const std::vector<float>& probabilities, size_t distance) {
  int found = 0;
  for (size_t token = 0; token < kTokens; ++token) {
    const float* const row = probabilities.data() + (token * 2 + distance) * kExperts;
    for (size_t rank = 0; rank < kChosen; ++rank) {
      const float own = row[task.choices[distance][token * kChosen + rank]];
      if (std::count_if(row, row + kExperts, [&](float other) { return other > own; }) < kChosen) found++;
    }
  }
  return found / double{kTokens * kChosen};
}

void learns() {
  const Task task;
  std::vector<double> errors;
  const std::atomic<bool> cancelled = false;
  const LayerMaps maps = train_expert_maps(
      task.training(300),
      [&](int epoch, double error) {
        errors.push_back(error);
        check(errors.size() == static_cast<size_t>(epoch), "an epoch is missing");
      },
      cancelled);
  check(errors.size() == 300 && errors.back() < errors.front() / 3, "the error does not fall");
  const auto probabilities = maps_of(maps).predict(0, task.states, kTokens);
  for (const size_t distance : {0u, 1u}) {
    const double share = recall(task, probabilities, distance);
    check(share > 0.9, "recall is " + std::to_string(share) + " at distance " + std::to_string(distance));
  }
}

void trains_the_same(const std::string& set) {
  const Task task;
  const LayerMaps expected = train(task.training(3, 1, "scalar"));
  for (const int threads : {1, 2, 5}) {
    check(are_same(train(task.training(3, threads, set)), expected), "other bits with " + std::to_string(threads) + " threads");
  }
  MapTraining other = task.training(3, 1, set);
  other.seed = 6;
  check(!are_same(train(other), expected), "the seed changes nothing");
}

void predicts_the_same(const std::string& set) {
  const Task task;
  const LayerMaps weights = train(task.training(2));
  const auto together = maps_of(weights, set).predict(0, task.states, kTokens);
  check_same(together, maps_of(weights, "scalar").predict(0, task.states, kTokens), "probabilities");
  const ExpertMaps maps = maps_of(weights, set);
  for (const size_t row : {size_t{0}, size_t{1}, size_t{kTokens - 1}}) {
    const auto alone = maps.predict(0, std::span(task.states).subspan(row * kHidden, kHidden), 1);
    check_same(alone.data(), together.data() + row * alone.size(), alone.size(), "a row alone");
    const auto last = maps.predict(1, std::span(task.states).subspan(row * kHidden, kHidden), 1);
    check_same(last.data(), alone.data(), kExperts, "the last layer");
    check(last.size() == kExperts, "the last layer foretells more than itself");
  }
}

// The same map in double precision.
void is_near_double() {
  const Task task;
  const LayerMaps weights = train(task.training(5));
  const auto actual = maps_of(weights).predict(0, task.states, kTokens);
  for (size_t token = 0; token < 20; ++token) {
    const float* const x = task.states.data() + token * kHidden;
    const double square = std::inner_product(x, x + kHidden, x, 0.0);
    std::vector<double> h;
    for (size_t unit = 0; unit < kUnits; ++unit) {
      double z = 0;
      for (size_t i = 0; i < kHidden; ++i) z += weights.units[unit * kHidden + i] * double{x[i]};
      z *= double{weights.unit_scales[unit]} / std::sqrt(square / kHidden);
      h.push_back(z / (1 + std::exp(-z)));
    }
    for (size_t head = 0; head < 2 * kExperts; ++head) {
      double score = 0;
      for (size_t unit = 0; unit < kUnits; ++unit) score += weights.heads[head * kUnits + unit] * h[unit];
      score = score * double{weights.head_scales[head]} + double{weights.biases[head]};
      const double expected = 1 / (1 + std::exp(-score));
      check(std::fabs(double{actual[token * 2 * kExperts + head]} - expected) < 1e-5, "far from double precision");
    }
  }
}

void bears_bad_states() {
  Task task;
  const LayerMaps weights = train(task.training(2));
  task.states[kHidden + 3] = std::numeric_limits<float>::quiet_NaN();
  task.states[2 * kHidden] = -std::numeric_limits<float>::infinity();
  std::fill_n(task.states.begin() + 3 * kHidden, kHidden, 0.0f);
  std::fill_n(task.states.begin() + 4 * kHidden, kHidden, 3e38f);
  const auto probabilities = maps_of(weights).predict(0, std::span(task.states).first(5 * kHidden), 5);
  for (size_t i = 0; i < probabilities.size(); ++i) {
    const size_t row = i / (2 * kExperts);
    const bool zero = row == 1 || row == 2;
    check(zero ? probabilities[i] == 0.0f : probabilities[i] > 0.0f && probabilities[i] < 1.0f, "row " + std::to_string(row));
  }
  // The training leaves out such tokens, and those without a choice.
  MapTraining training = task.training(2);
  const LayerMaps with_bad = train(training);
  std::fill_n(task.states.begin() + kHidden, 2 * kHidden, 1.0f);
  for (std::vector<int32_t>& chosen : task.choices) std::fill_n(chosen.begin() + kChosen, 2 * kChosen, -1);
  check(are_same(train(task.training(2)), with_bad), "tokens that do not count change the maps");
}

void refuses() {
  const Task task;
  const LayerMaps weights = train(task.training(1));
  const auto refused = [](const std::function<void()>& body) { check_refused(ErrorCode::internal, body); };
  const auto refused_training = [&](const std::function<void(MapTraining&)>& change) {
    MapTraining training = task.training(1);
    change(training);
    refused([&] { train(training); });
  };
  const std::vector<int32_t> beyond(size_t{kTokens} * kChosen, kExperts);
  const std::vector<int32_t> unknown(size_t{kTokens} * kChosen, -1);
  refused_training([](MapTraining& training) { training.units = 0; });
  refused_training([](MapTraining& training) { training.choices.clear(); });
  refused_training([](MapTraining& training) { training.states = training.states.first(kHidden + 1); });
  refused_training([](MapTraining& training) { training.states = training.states.first(kHidden); });
  refused_training([&](MapTraining& training) { training.choices[1] = beyond; });
  refused_training([&](MapTraining& training) { training.choices = {unknown, unknown}; });
  const auto refused_weights = [&](const std::function<void(LayerMaps&)>& change) {
    LayerMaps changed = weights;
    change(changed);
    refused([&] { maps_of(changed); });
  };
  refused_weights([](LayerMaps& maps) { maps.units.pop_back(); });
  refused_weights([](LayerMaps& maps) { maps.unit_scales[0] = std::numeric_limits<float>::infinity(); });
  refused_weights([](LayerMaps& maps) { maps.biases[1] = std::numeric_limits<float>::quiet_NaN(); });
  const ExpertMaps maps = maps_of(weights);
  refused([&] { maps.predict(2, std::span(task.states).first(kHidden), 1); });
  refused([&] { maps.predict(0, std::span(task.states).first(kHidden), 2); });
  ExpertMapsShape falling = kShape;
  falling.distances = {1, 1};
  refused([&] { ExpertMaps(falling, std::vector<LayerMaps>{weights, weights}); });
}

void is_cancelled() {
  const Task task;
  std::atomic<bool> cancelled = false;
  int epochs = 0;
  check_refused(ErrorCode::cancelled, [&] {
    train_expert_maps(
        task.training(1000),
        [&](int epoch, double) {
          epochs = epoch;
          cancelled = epoch == 2;
        },
        cancelled);
  });
  check(epochs == 2, "it goes on after it was cancelled");
}

}  // namespace

void add_expert_maps_cases(std::vector<Case>& cases) {
  cases.push_back({"expert maps: learn which experts a state leads to", learns});
  cases.push_back({"expert maps: near double precision", is_near_double});
  cases.push_back({"expert maps: NaN, infinity, zeros and huge values in states", bears_bad_states});
  cases.push_back({"expert maps: refuse what does not belong together", refuses});
  cases.push_back({"expert maps: the training is cancelled", is_cancelled});
  for (const std::string& set : instruction_sets()) {
    cases.push_back({"expert maps " + set + ": trained to the same bits", [=] { trains_the_same(set); }});
    cases.push_back({"expert maps " + set + ": foretell with the same bits", [=] { predicts_the_same(set); }});
  }
}

}  // namespace odmoe::test
