#include "odmoe/measure_operators.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "odmoe/measure.h"
#include "operator_cases.h"

namespace odmoe {
namespace {

constexpr int kLeastRounds = 3;
// In-place operators bring values nearer to 0 with each round; after this many rounds they are still normal numbers.
constexpr int kMostRounds = 100;
constexpr int kFirstMeasures = 20;
// Duration of an operator in one round, if its turns take longer.
constexpr double kRoundSeconds = 0.05;

// With one thread it measures processor time, which does not depend on other load of the machine; with several it measures elapsed
// time.
class Stopwatch {
 public:
  explicit Stopwatch(int threads) : one_thread_(threads == 1) { restart(); }
  void restart() { start_ = now(); }
  double seconds() const { return now() - start_; }

 private:
  double now() const {
    if (!one_thread_) return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }

  bool one_thread_;
  double start_ = 0;
};

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The best speeds of the machine so far: on a busy machine many rounds are slower.
struct Limits {
  int threads;
  ReadMeter read;
  FmaMeter fma;
  double read_bytes_per_s = 0;
  double multiply_adds_per_s = 0;

  Limits(int of_threads, const std::string& instruction_set)
      : threads(of_threads), read(of_threads), fma(of_threads, instruction_set) {
    for (int i = 0; i < kFirstMeasures; i++) measure();
  }

  void measure() {
    const Stopwatch watch(threads);
    read.read_bytes_per_s();
    read_bytes_per_s = std::max(read_bytes_per_s, static_cast<double>(ReadMeter::kBytes) / watch.seconds());
    multiply_adds_per_s = std::max(multiply_adds_per_s, fma.flop_per_s() / 2);
  }
};

// Median of the calls of one round.
double call_seconds(const OperatorCase& of, int threads, int64_t& turn) {
  std::vector<double> calls;
  const Stopwatch round(threads);
  Stopwatch call(threads);
  do {
    call.restart();
    of.run(turn);
    calls.push_back(call.seconds());
    turn = (turn + 1) % of.turns;
  } while (static_cast<int64_t>(calls.size()) < of.turns && round.seconds() < kRoundSeconds);
  return median(calls);
}

OperatorSpeed measure_case(const OperatorCase& of, Limits& limits, double seconds) {
  std::vector<double> times;
  int64_t turn = 0;
  const Stopwatch watch(limits.threads);
  for (int round = 0; round < kLeastRounds || (round < kMostRounds && watch.seconds() < seconds); round++) {
    limits.measure();
    times.push_back(call_seconds(of, limits.threads, turn));
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
  Limits limits(info.threads, info.instruction_set);
  const OperatorPools pools(backend);
  std::vector<OperatorSpeed> speeds;
  for (const auto& makers : {product_cases(), mixer_cases(), norm_cases(), element_cases()}) {
    for (const OperatorCaseMaker& make : makers) speeds.push_back(measure_case(make(pools), limits, seconds));
  }
  return speeds;
}

}  // namespace odmoe
