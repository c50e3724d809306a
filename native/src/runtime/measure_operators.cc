#include "odmoe/measure_operators.h"

#include <algorithm>
#include <chrono>

#include "odmoe/measure.h"
#include "operator_cases.h"

namespace odmoe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLeastRounds = 3;
// In-place operators bring values nearer to 0 with each round; after so many they are still normal numbers.
constexpr int kMostRounds = 100;
constexpr int kFirstMeasures = 20;
// What a round runs an operator for, if its turns take longer.
constexpr double kRoundSeconds = 0.05;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// What the machine has given at best so far: on a busy one, many a round gives less.
struct Limits {
  ReadMeter read;
  FmaMeter fma;
  double read_bytes_per_s = 0;
  double multiply_adds_per_s = 0;

  void measure() {
    read_bytes_per_s = std::max(read_bytes_per_s, read.read_bytes_per_s());
    multiply_adds_per_s = std::max(multiply_adds_per_s, fma.flop_per_s() / 2);
  }
};

// Median of the calls of one round: on a busy machine some are interrupted.
double call_seconds(const OperatorCase& of, int64_t& turn) {
  std::vector<double> calls;
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    of.run(turn);
    calls.push_back(seconds_since(start));
    turn = (turn + 1) % of.turns;
  } while (static_cast<int64_t>(calls.size()) < of.turns && seconds_since(begin) < kRoundSeconds);
  return median(calls);
}

OperatorSpeed measure_case(const OperatorCase& of, Limits& limits, double seconds) {
  std::vector<double> times;
  int64_t turn = 0;
  const auto begin = Clock::now();
  for (int round = 0; round < kLeastRounds || (round < kMostRounds && seconds_since(begin) < seconds); round++) {
    limits.measure();
    times.push_back(call_seconds(of, turn));
  }
  const double call_s = median(times);
  return {of.operation,
          of.sizes,
          of.rows,
          call_s,
          of.bytes / call_s / limits.read_bytes_per_s,
          of.multiply_adds / call_s / limits.multiply_adds_per_s};
}

}  // namespace

std::vector<OperatorSpeed> measure_operators(const std::shared_ptr<Backend>& backend, double seconds) {
  const DeviceInfo info = backend->info();
  Limits limits{ReadMeter(info.threads), FmaMeter(info.threads, info.instruction_set)};
  for (int i = 0; i < kFirstMeasures; i++) limits.measure();
  const OperatorPools pools(backend);
  std::vector<OperatorSpeed> speeds;
  for (const auto& makers : {product_cases(), mixer_cases(), norm_cases(), element_cases()}) {
    for (const OperatorCaseMaker& make : makers) speeds.push_back(measure_case(make(pools), limits, seconds));
  }
  return speeds;
}

}  // namespace odmoe
