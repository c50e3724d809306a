// Residual streams: weights, sums and mixes against the one arithmetic and against double precision.
#include <cmath>
#include <limits>

#include "native_tests.h"
#include "reference_operators.h"

namespace odmoe::test {
namespace {

constexpr int kSizes[] = {1, 7, 32, 100, 20000};
constexpr float kEpsilon = 1e-6f;

struct Weighing {
  int streams;
  int rounds;
  bool ending;
  bool mixes = true;
  float magnitude = 2;

  StreamWeightsWork work(float* values, const float* scales, const float* base, int rows) const {
    return {values, scales, base, rows, streams, ending, kEpsilon, rounds, mixes, magnitude};
  }
};

constexpr Weighing kWeighings[] = {
    {4, 20, false}, {4, 1, false},       {2, 3, false},           {3, 2, false},           {8, 5, false},
    {4, 1, true},   {4, 0, true, false}, {4, 0, false, false, 2}, {7, 0, false, false, 3}, {5, 1, true},
};

// As far from 0 as exp() reaches, with values that are not finite in some rows.
std::vector<float> map_values(const Weighing& of, int rows, bool strange) {
  const int columns = of.work(nullptr, nullptr, nullptr, rows).columns();
  std::vector<float> values = random_values(static_cast<size_t>(rows * columns), 3, 2.0f);
  if (!strange) return values;
  values[0] = std::numeric_limits<float>::infinity();
  values[values.size() / 2] = std::nanf("");
  values.back() = -std::numeric_limits<float>::infinity();
  return values;
}

void weighs(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  for (const Weighing& of : kWeighings) {
    for (const int rows : {1, 7, 300}) {
      for (const bool strange : {false, true}) {
        std::vector<float> expected = map_values(of, rows, strange);
        const std::vector<float> scales = {0.7f, -1.3f, 2.5f};
        const std::vector<float> base = random_values(expected.size() / static_cast<size_t>(rows), 4);
        DeviceFloats values(*backend, expected);
        DeviceFloats device_scales(*backend, scales);
        DeviceFloats device_base(*backend, base);
        reference_stream_weights(of.work(expected.data(), scales.data(), base.data(), rows));
        backend->stream_weights(of.work(values.data(), device_scales.data(), device_base.data(), rows));
        check_same(values.read(), expected, "weights of " + std::to_string(of.streams) + " streams");
      }
    }
  }
}

void sums_and_mixes(const std::string& set, int threads, bool mixed) {
  auto backend = open_backend(set, threads);
  for (const int count : {2, 4, 5, kMostStreams}) {
    for (const int size : kSizes) {
      const int rows = size > 1000 ? 2 : 9;
      const auto values = static_cast<size_t>(rows * size);
      const int64_t columns = mixed ? int64_t{2 + count} * count : int64_t{2} * count;
      std::vector<float> streams = random_values(values * static_cast<size_t>(count), 5, 3.0f);
      const std::vector<float> output = random_values(values, 6);
      std::vector<float> weights = random_values(static_cast<size_t>(rows * columns), 7);
      std::vector<float> sums(values);
      DeviceFloats device_streams(*backend, streams);
      DeviceFloats device_output(*backend, output);
      DeviceFloats device_weights(*backend, weights);
      DeviceFloats device_sums(*backend, values);
      reference_sum_streams({sums.data(), streams.data(), weights.data(), columns, rows, count, size});
      backend->sum_streams({device_sums.data(), device_streams.data(), device_weights.data(), columns, rows, count, size});
      const std::string what = std::to_string(count) + " streams of " + std::to_string(size);
      check_same(device_sums.read(), sums, "the sum of " + what);
      reference_mix_streams({streams.data(), output.data(), weights.data(), rows, count, size, mixed});
      backend->mix_streams({device_streams.data(), device_output.data(), device_weights.data(), rows, count, size, mixed});
      check_same(device_streams.read(), streams, "the mix of " + what);
    }
  }
}

// Rows and columns of the mix have sums of 1, and the weights are those of double precision.
void balances() {
  const Weighing of{4, 20, false};
  std::vector<float> values = map_values(of, 1, false);
  const std::vector<float> scales = {0.5f, 1.0f, 0.3f};
  const std::vector<float> base(values.size(), 0.1f);
  const std::vector<float> before = values;
  reference_stream_weights({values.data(), scales.data(), base.data(), 1, 4, false, kEpsilon, 20});
  for (size_t i = 0; i < 8; ++i) {
    const double sigmoid = 1 / (1 + std::exp(-(double{before[i]} * scales[i / 4] + base[i])));
    const double expected = i < 4 ? sigmoid + kEpsilon : 2 * sigmoid;
    check(std::fabs(values[i] - expected) < 1e-6, "weight " + std::to_string(i));
  }
  for (size_t j = 0; j < 4; ++j) {
    double row = 0;
    double column = 0;
    for (size_t k = 0; k < 4; ++k) {
      row += values[8 + 4 * j + k];
      column += values[8 + 4 * k + j];
    }
    check(std::fabs(row - 1) < 1e-3 && std::fabs(column - 1) < 1e-4, "row and column " + std::to_string(j));
  }
}

// Streams without a mix, by double precision: the weights, and each stream with the output added.
void adds() {
  constexpr int kStreams = 4;
  constexpr int kSize = 3;
  const Weighing of{kStreams, 0, false, false, 1.5f};
  std::vector<float> weights = map_values(of, 1, false);
  check(weights.size() == 2 * kStreams, "two weights a stream");
  const std::vector<float> scales = {0.5f, 1.3f};
  const std::vector<float> base(weights.size(), -0.2f);
  const std::vector<float> before = weights;
  reference_stream_weights(of.work(weights.data(), scales.data(), base.data(), 1));
  std::vector<float> streams = random_values(kStreams * kSize, 5);
  const std::vector<float> old = streams;
  const std::vector<float> output = random_values(kSize, 6);
  reference_mix_streams({streams.data(), output.data(), weights.data(), 1, kStreams, kSize, false});
  for (size_t k = 0; k < kStreams; ++k) {
    const auto weight = [&](size_t i) { return 1 / (1 + std::exp(-(double{before[i]} * scales[i / kStreams] + base[i]))); };
    check(std::fabs(weights[k] - (weight(k) + kEpsilon)) < 1e-6, "weight before the part " + std::to_string(k));
    const double behind = 1.5 * weight(kStreams + k) + kEpsilon;
    for (size_t c = 0; c < kSize; ++c) {
      check(std::fabs(streams[k * kSize + c] - (old[k * kSize + c] + behind * output[c])) < 1e-5, "stream " + std::to_string(k));
    }
  }
}

}  // namespace

void add_residual_streams_cases(std::vector<Case>& cases) {
  cases.push_back({"residual streams: the mix has rows and columns of 1", balances});
  cases.push_back({"residual streams: without a mix the output is added", adds});
  for (const std::string& set : instruction_sets()) {
    for (const int threads : {1, 3}) {
      const std::string equals = ": equals the one arithmetic, " + std::to_string(threads) + " threads";
      cases.push_back({"weights of residual streams " + set + equals, [=] { weighs(set, threads); }});
      cases.push_back({"sums of residual streams " + set + equals, [=] { sums_and_mixes(set, threads, true); }});
      cases.push_back({"sums of streams without a mix " + set + equals, [=] { sums_and_mixes(set, threads, false); }});
    }
  }
}

}  // namespace odmoe::test
