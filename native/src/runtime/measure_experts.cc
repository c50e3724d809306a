#include "odmoe/measure_experts.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "odmoe/error.h"
#include "odmoe/expert.h"
#include "odmoe/measure.h"
#include "odmoe/slices.h"
#include "random_block_rows.h"

namespace odmoe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLeastRounds = 3;
constexpr uint32_t kSeed = 1;
constexpr int64_t kBlockRows = 64;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Random BF16 values with the usual spread of weights, as FP32.
std::vector<float> random_weights(int64_t count) {
  std::mt19937 generator(kSeed);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = normal(generator);
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits &= 0xffff0000u;
    std::memcpy(&value, &bits, sizeof bits);
  }
  return values;
}

constexpr Split sliced_split(WeightFormat format) {
  if (format == WeightFormat::sliced84) return Split::sliced84;
  return format == WeightFormat::sliced63 ? Split::sliced63 : Split::sliced42;
}

// Experts of one form, equal except for their addresses.
class ExpertSet {
 public:
  ExpertSet(const std::shared_ptr<Backend>& backend, const ExpertBenchOptions& options, const ExpertForm& form,
            const std::vector<float>& weights)
      : backend_(*backend), form_(form) {
    const ExpertShape shape{options.hidden_size, {.intermediate_size = options.intermediate_size}, form.format};
    glu_ = shape.glu;
    for (int i = 0; i < options.experts; i++) {
      const SliceReading reading = form.upper_alone ? SliceReading::upper_centred : SliceReading::both;
      ExpertMatrices& expert = experts_.emplace_back(backend, shape, reading);
      for (StoredMatrix* const stored : {&expert.gate_up, &expert.down}) {
        fill(*stored, weights);
        bytes_ += static_cast<double>(stored->bytes());
        weights_ += static_cast<double>(stored->matrix.rows * stored->matrix.columns);
      }
    }
  }

  double bytes() const { return bytes_; }
  double weights() const { return weights_; }

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
  void fill(StoredMatrix& stored, const std::vector<float>& weights) {
    if (slice_bits(form_.format) != 0) return fill_slices(stored.matrix, weights);
    if (is_blocks(form_.format)) return fill_blocks(stored.matrix);
    const auto* const planes = reinterpret_cast<const uint8_t*>(weights.data());
    if (backend_.write_rows(stored.matrix, 0, stored.matrix.rows, Split::none_fp32, &planes)) return;
    throw Error(ErrorCode::internal, "random weights do not fit fixed4");
  }

  void fill_slices(Matrix& matrix, const std::vector<float>& weights) {
    const Split split = sliced_split(form_.format);
    std::vector<uint8_t> upper(static_cast<size_t>(plane_row_bytes(split, 0, matrix.columns)));
    std::vector<uint8_t> lower(static_cast<size_t>(plane_row_bytes(split, 1, matrix.columns)));
    for (int64_t row = 0; row < matrix.rows; row++) {
      const char* const fault = slice_row(split, weights.data() + row * matrix.columns, matrix.columns, upper.data(), lower.data());
      if (fault != nullptr) throw Error(ErrorCode::internal, std::string("random weights cannot be sliced: ") + fault);
      const uint8_t* const planes[] = {upper.data(), form_.upper_alone ? nullptr : lower.data()};
      backend_.write_rows(matrix, row, 1, split, planes);
    }
  }

  // A few rows over and over.
  void fill_blocks(Matrix& matrix) {
    const auto split = static_cast<Split>(form_.format);
    if (matrix.columns % columns_together(split) != 0) {
      throw Error(ErrorCode::request_invalid, "an expert with matrices of " + std::to_string(matrix.columns) +
                                                  " columns has no form with blocks of " + std::to_string(columns_together(split)) +
                                                  "; choose sizes that are multiples of it");
    }
    const BlockRows some = random_block_rows(split, kBlockRows, matrix.columns, kSeed);
    const uint8_t* const planes[] = {some.at(0, 0), plane_count(split) == 2 ? some.at(1, 0) : nullptr};
    for (int64_t row = 0; row < matrix.rows; row += kBlockRows) {
      backend_.write_rows(matrix, row, std::min(kBlockRows, matrix.rows - row), split, planes);
    }
  }

  Backend& backend_;
  const ExpertForm form_;
  GluShape glu_;
  std::vector<ExpertMatrices> experts_;
  double bytes_ = 0;
  double weights_ = 0;
};

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

ExpertSpeed measure_tokens(ReadMeter& meter, std::vector<ExpertSet>& sets, const ExpertActivations& activations, int tokens,
                           double seconds) {
  std::vector<double> reads;
  std::vector<std::vector<double>> times(sets.size());
  std::vector<std::vector<double>> speedups(sets.size());
  const auto begin = Clock::now();
  for (int round = 0; round < kLeastRounds || seconds_since(begin) < seconds; round++) {
    reads.push_back(meter.read_bytes_per_s());
    for (size_t i = 0; i < sets.size(); i++) {
      times[i].push_back(sets[i].seconds(activations, tokens));
      speedups[i].push_back(times[0].back() / times[i].back());
    }
  }
  ExpertSpeed speed{tokens, median(reads), {}};
  for (size_t i = 0; i < sets.size(); i++) {
    const double time = median(times[i]);
    speed.forms.push_back({sets[i].bytes() / time, sets[i].weights() / time, median(speedups[i])});
  }
  return speed;
}

}  // namespace

std::vector<ExpertSpeed> measure_experts(const std::shared_ptr<Backend>& backend, const ExpertBenchOptions& options) {
  const auto weights = random_weights(2 * options.intermediate_size * options.hidden_size);
  std::vector<ExpertSet> sets;
  for (const ExpertForm& form : options.forms) sets.emplace_back(backend, options, form, weights);
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
    speeds.push_back(measure_tokens(meter, sets, activations, tokens, options.seconds));
  }
  return speeds;
}

}  // namespace odmoe
