#include "odmoe/measure_experts.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>

#include "odmoe/error.h"
#include "odmoe/expert.h"
#include "odmoe/measure.h"

namespace odmoe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLeastRounds = 3;
constexpr uint32_t kSeed = 1;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Random BF16 values with the usual spread of weights.
std::vector<uint16_t> random_weights(int64_t count) {
  std::mt19937 generator(kSeed);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& value : values) {
    const float x = normal(generator);
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    value = static_cast<uint16_t>(bits >> 16);
  }
  return values;
}

// Experts of one format, equal except for their addresses.
class ExpertSet {
 public:
  ExpertSet(const std::shared_ptr<Backend>& backend, const ExpertBenchOptions& options, WeightFormat format,
            const std::vector<uint16_t>& weights)
      : backend_(*backend) {
    const ExpertShape shape{options.hidden_size, {.intermediate_size = options.intermediate_size}, format};
    glu_ = shape.glu;
    for (int i = 0; i < options.experts; i++) {
      ExpertMatrices& expert = experts_.emplace_back(backend, shape);
      fill(expert.gate_up, weights);
      fill(expert.down, weights);
      bytes_ += static_cast<double>(expert.gate_up.memory.buffer().bytes + expert.down.memory.buffer().bytes);
    }
  }

  double bytes() const { return bytes_; }

  // Executes all of them, each on `rows` rows.
  double seconds(const ExpertActivations& activations, int rows) {
    const auto start = Clock::now();
    for (const ExpertMatrices& expert : experts_) {
      const ExpertRows run{&expert, rows};
      run_experts(backend_, glu_, {&run, 1}, activations, activations.output.floats(), activations.input.floats());
    }
    return seconds_since(start);
  }

 private:
  void fill(StoredMatrix& stored, const std::vector<uint16_t>& weights) {
    const auto* const planes = reinterpret_cast<const uint8_t*>(weights.data());
    if (backend_.write_rows(stored.matrix, 0, stored.matrix.rows, Split::none_bf16, &planes)) return;
    throw Error(ErrorCode::internal, "random weights do not fit fixed4");
  }

  Backend& backend_;
  GluShape glu_;
  std::vector<ExpertMatrices> experts_;
  double bytes_ = 0;
};

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

ExpertSpeed measure_tokens(ReadMeter& meter, ExpertSet& bf16, ExpertSet& fixed4, const ExpertActivations& activations, int tokens,
                           double seconds) {
  std::vector<double> reads;
  std::vector<double> bf16_rates;
  std::vector<double> fixed4_rates;
  std::vector<double> speedups;
  const auto begin = Clock::now();
  for (int round = 0; round < kLeastRounds || seconds_since(begin) < seconds; round++) {
    reads.push_back(meter.read_bytes_per_s());
    const double bf16_seconds = bf16.seconds(activations, tokens);
    const double fixed4_seconds = fixed4.seconds(activations, tokens);
    bf16_rates.push_back(bf16.bytes() / bf16_seconds);
    fixed4_rates.push_back(fixed4.bytes() / fixed4_seconds);
    speedups.push_back(bf16_seconds / fixed4_seconds);
  }
  return {tokens, median(reads), median(bf16_rates), median(fixed4_rates), median(speedups)};
}

}  // namespace

std::vector<ExpertSpeed> measure_experts(const std::shared_ptr<Backend>& backend, const ExpertBenchOptions& options) {
  const auto weights = random_weights(2 * options.intermediate_size * options.hidden_size);
  ExpertSet bf16(backend, options, WeightFormat::bf16, weights);
  ExpertSet fixed4(backend, options, WeightFormat::fixed4, weights);
  const int most = *std::max_element(options.tokens.begin(), options.tokens.end());
  const ExpertShape shape{options.hidden_size, {.intermediate_size = options.intermediate_size}, WeightFormat::bf16};
  const ExpertActivations activations(backend, shape, most);
  if (most > activations.rows) {
    throw Error(ErrorCode::internal,
                std::to_string(most) + " tokens; an expert takes " + std::to_string(activations.rows) + " at once");
  }
  std::vector<float> input(static_cast<size_t>(most * options.hidden_size));
  for (size_t i = 0; i < input.size(); i++) input[i] = static_cast<float>(i % 17) * 0.125f - 1.0f;
  backend->copy_to_device(activations.input.floats(), input.data(), input.size() * sizeof(float));
  ReadMeter meter(backend->info().threads);
  std::vector<ExpertSpeed> speeds;
  for (const int tokens : options.tokens) {
    speeds.push_back(measure_tokens(meter, bf16, fixed4, activations, tokens, options.seconds));
  }
  return speeds;
}

}  // namespace odmoe
