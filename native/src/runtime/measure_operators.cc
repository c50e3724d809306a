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
// What a round runs an operator for, if its turns take longer.
constexpr double kRoundSeconds = 0.05;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Meters {
  ReadMeter read;
  FmaMeter fma;
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

OperatorSpeed measure_case(const OperatorCase& of, Meters& meters, double seconds) {
  std::vector<double> times;
  std::vector<double> read_shares;
  std::vector<double> fma_shares;
  int64_t turn = 0;
  const auto begin = Clock::now();
  for (int round = 0; round < kLeastRounds || (round < kMostRounds && seconds_since(begin) < seconds); round++) {
    const double read_bytes_per_s = meters.read.read_bytes_per_s();
    const double multiply_adds_per_s = meters.fma.flop_per_s() / 2;
    const double call_s = call_seconds(of, turn);
    times.push_back(call_s);
    read_shares.push_back(of.bytes / call_s / read_bytes_per_s);
    fma_shares.push_back(of.multiply_adds / call_s / multiply_adds_per_s);
  }
  return {of.operation, of.sizes, of.rows, median(times), median(read_shares), median(fma_shares)};
}

}  // namespace

std::vector<OperatorSpeed> measure_operators(const std::shared_ptr<Backend>& backend, double seconds) {
  const DeviceInfo info = backend->info();
  Meters meters{ReadMeter(info.threads), FmaMeter(info.threads, info.instruction_set)};
  const OperatorPools pools(backend);
  std::vector<OperatorSpeed> speeds;
  for (const auto& makers : {product_cases(), mixer_cases(), norm_cases(), element_cases()}) {
    for (const OperatorCaseMaker& make : makers) speeds.push_back(measure_case(make(pools), meters, seconds));
  }
  return speeds;
}

}  // namespace odmoe
