// The training of expert maps. Every sum has one order, whichever thread computes it: rows of a batch are independent of one another, and
// each weight's gradient is summed over the batch's rows in rising order.
#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "kernel_table.h"
#include "odmoe/answer_math.h"
#include "odmoe/error.h"
#include "odmoe/expert_maps.h"
#include "odmoe/float_environment.h"
#include "thread_pool.h"

namespace odmoe {
namespace {

using cpu::KernelTable;

constexpr int64_t kBatchRows = 256;
constexpr int64_t kTaskRows = 16;    // rows of a batch
constexpr int64_t kTaskInputs = 32;  // rows of weights
constexpr int64_t kTaskUnits = 8;
constexpr float kLearningRate = 4e-3f;
constexpr float kFirstDecay = 0.9f;
constexpr float kSecondDecay = 0.999f;
constexpr float kAdamEpsilon = 1e-8f;

int64_t parts_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

// Weights with Adam's two moments (arXiv 1412.6980, algorithm 1).
struct Weights {
  explicit Weights(int64_t count)
      : value(static_cast<size_t>(count)), gradient(value.size()), first(value.size()), second(value.size()) {}

  // Takes a step with the gradients of [begin, end).
  void step(int64_t begin, int64_t end, float rate) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      first[i] = kFirstDecay * first[i] + (1.0f - kFirstDecay) * gradient[i];
      second[i] = kSecondDecay * second[i] + (1.0f - kSecondDecay) * (gradient[i] * gradient[i]);
      value[i] -= rate * first[i] / (__builtin_sqrtf(second[i]) + kAdamEpsilon);
    }
  }

  std::vector<float> value;
  std::vector<float> gradient;
  std::vector<float> first;
  std::vector<float> second;
};

// Each row of `rows` x `columns` as integers with one scale.
void quantize(std::vector<int8_t>& integers, std::vector<float>& scales, int64_t rows, int64_t columns,
              const std::function<float(int64_t row, int64_t column)>& weight) {
  for (int64_t row = 0; row < rows; ++row) {
    float most = 0;
    for (int64_t column = 0; column < columns; ++column) most = std::max(most, std::fabs(weight(row, column)));
    const float scale = most / 127.0f;
    scales.push_back(scale);
    for (int64_t column = 0; column < columns; ++column) {
      const float integer = scale == 0.0f ? 0.0f : std::nearbyint(weight(row, column) / scale);
      integers.push_back(static_cast<int8_t>(std::clamp(integer, -127.0f, 127.0f)));
    }
  }
}

void check_training(const MapTraining& training) {
  const auto refuse = [](const std::string& reason) {
    throw Error(ErrorCode::internal, "expert maps cannot be trained: " + reason);
  };
  if (training.hidden_size < 1 || training.experts < 1 || training.experts_per_token < 1 || training.units < 1 ||
      training.epochs < 1 || training.choices.empty()) {
    refuse("a size is below 1");
  }
  const size_t tokens = training.states.size() / static_cast<size_t>(training.hidden_size);
  if (tokens * static_cast<size_t>(training.hidden_size) != training.states.size()) refuse("the states end within a token");
  for (const std::span<const int32_t>& chosen : training.choices) {
    if (chosen.size() != tokens * static_cast<size_t>(training.experts_per_token)) {
      refuse("choices do not fit " + std::to_string(tokens) + " tokens");
    }
    for (const int32_t expert : chosen) {
      if (expert < -1 || expert >= training.experts) refuse("a choice names expert " + std::to_string(expert));
    }
  }
}

class Trainer {
 public:
  explicit Trainer(const MapTraining& training)
      : training_(training),
        kernels_(cpu::choose_kernels(training.instruction_set)),
        pool_(training.threads == 0 ? cpu::usable_threads() : training.threads),
        random_(training.seed),
        hidden_(training.hidden_size),
        units_(training.units),
        heads_(static_cast<int64_t>(training.choices.size()) * training.experts),
        // Rows that lie a power of two apart would share few sets of the cache.
        stride_(hidden_ + 16),
        inputs_(static_cast<size_t>(kBatchRows * stride_)),
        products_(static_cast<size_t>(kBatchRows * units_)),
        sigmoids_(products_.size()),
        activations_(products_.size()),
        unit_errors_(products_.size()),
        head_errors_(static_cast<size_t>(kBatchRows * heads_)),
        scores_(head_errors_.size()),
        row_errors_(static_cast<size_t>(kBatchRows)),
        unit_weights_(hidden_ * units_),
        head_weights_(units_ * heads_),
        biases_(heads_),
        heads_by_row_(static_cast<size_t>(units_ * heads_)) {
    begin_weights();
    find_tokens();
  }

  LayerMaps train(const EpochListener& on_epoch, const std::atomic<bool>& cancelled) {
    const auto tokens = static_cast<int64_t>(tokens_.size());
    const int64_t steps = training_.epochs * parts_of(tokens, kBatchRows);
    for (int epoch = 1; epoch <= training_.epochs; ++epoch) {
      shuffle();
      double error = 0;
      for (int64_t begin = 0; begin < tokens; begin += kBatchRows) {
        if (cancelled) throw Error(ErrorCode::cancelled, "the training of expert maps was cancelled");
        const int64_t rows = std::min(kBatchRows, tokens - begin);
        run_rows(begin, rows);
        take_step(rows, 1.0f - static_cast<float>(steps_) / static_cast<float>(steps));
        for (int64_t row = 0; row < rows; ++row) error += row_errors_[static_cast<size_t>(row)];
      }
      on_epoch(epoch, error / static_cast<double>(tokens * heads_));
    }
    return stored();
  }

 private:
  void begin_weights() {
    const float width = std::sqrt(3.0f / static_cast<float>(hidden_));
    for (float& weight : unit_weights_.value) {
      const auto part = static_cast<float>(random_() >> 40) * 0x1p-23f;  // 0 to 2
      weight = (part - 1.0f) * width;
    }
    // Every expert is first as likely as all others.
    const auto chosen = static_cast<float>(std::min(training_.experts_per_token, training_.experts));
    const float likely = logarithm((chosen + 0.5f) / (static_cast<float>(training_.experts) - chosen + 0.5f));
    std::fill(biases_.value.begin(), biases_.value.end(), likely);
  }

  std::span<const int32_t> choice(size_t distance, int64_t token) const {
    const auto k = static_cast<size_t>(training_.experts_per_token);
    return training_.choices[distance].subspan(static_cast<size_t>(token) * k, k);
  }

  static bool is_known(std::span<const int32_t> chosen) { return std::find(chosen.begin(), chosen.end(), -1) == chosen.end(); }

  const float* state(int64_t token) const { return training_.states.data() + token * hidden_; }

  void find_tokens() {
    const int64_t tokens = static_cast<int64_t>(training_.states.size()) / hidden_;
    for (int64_t token = 0; token < tokens; ++token) {
      bool known = false;
      for (size_t distance = 0; distance < training_.choices.size(); ++distance) known = known || is_known(choice(distance, token));
      const bool finite = std::all_of(state(token), state(token) + hidden_, [](float value) { return std::isfinite(value); });
      if (known && finite) tokens_.push_back(token);
    }
    if (tokens_.empty())
      throw Error(ErrorCode::internal, "expert maps cannot be trained: no token has a finite state and a choice");
  }

  void shuffle() {
    for (size_t i = tokens_.size() - 1; i > 0; --i) std::swap(tokens_[i], tokens_[random_() % (i + 1)]);
  }

  // Forward and backward through the rows of a batch.
  void run_rows(int64_t begin, int64_t rows) {
    pool_.run(parts_of(rows, kTaskRows), [&](int64_t task, int) {
      const int64_t first = task * kTaskRows;
      const int64_t end = std::min(rows, first + kTaskRows);
      for (int64_t row = first; row < end; ++row) {
        const auto size = static_cast<int>(hidden_);
        // The kernel only reads from its input.
        float* const in = const_cast<float*>(state(tokens_[static_cast<size_t>(begin + row)]));
        kernels_.normalize({{inputs_.data() + row * stride_, stride_, 0, 1, 1, size},
                            {in, hidden_, 0, 1, 1, size},
                            nullptr,
                            static_cast<float>(hidden_),
                            kMapEpsilon},
                           0, 1);
      }
      kernels_.sum_products(
          {products_.data(), units_, inputs_.data(), stride_, 1, unit_weights_.value.data(), units_, units_, hidden_}, first, end);
      activate(first * units_, end * units_);
      kernels_.sum_products(
          {scores_.data(), heads_, activations_.data(), units_, 1, head_weights_.value.data(), heads_, heads_, units_}, first, end);
      for (int64_t row = first; row < end; ++row) compare(row, tokens_[static_cast<size_t>(begin + row)]);
      kernels_.sum_products(
          {unit_errors_.data(), units_, head_errors_.data(), heads_, 1, heads_by_row_.data(), units_, units_, heads_}, first, end);
      pass_back(first * units_, end * units_);
    });
  }

  void activate(int64_t begin, int64_t end) {
    std::fill(sigmoids_.begin() + begin, sigmoids_.begin() + end, 1.0f);
    kernels_.gate(sigmoids_.data() + begin, products_.data() + begin, end - begin, Gate::sigmoid);
    kernels_.multiply_elements(activations_.data() + begin, products_.data() + begin, sigmoids_.data() + begin, end - begin);
  }

  // The derivative of silu(z) = z s(z) is s (1 + z (1 - s)).
  void pass_back(int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      unit_errors_[i] *= sigmoids_[i] * (1.0f + products_[i] * (1.0f - sigmoids_[i]));
    }
  }

  // The errors of a row's scores: probability - (chosen ? 1 : 0).
  void compare(int64_t row, int64_t token) {
    float* const errors = head_errors_.data() + row * heads_;
    kernels_.add(scores_.data() + row * heads_, biases_.value.data(), heads_, 1.0f);
    std::fill(errors, errors + heads_, 1.0f);
    kernels_.gate(errors, scores_.data() + row * heads_, heads_, Gate::sigmoid);
    for (size_t distance = 0; distance < training_.choices.size(); ++distance) {
      float* const of_distance = errors + static_cast<int64_t>(distance) * training_.experts;
      const std::span<const int32_t> chosen = choice(distance, token);
      if (!is_known(chosen)) {
        std::fill(of_distance, of_distance + training_.experts, 0.0f);
        continue;
      }
      for (size_t i = 0; i < chosen.size(); ++i) {
        const bool again = std::find(chosen.begin(), chosen.begin() + static_cast<int64_t>(i), chosen[i]) !=
                           chosen.begin() + static_cast<int64_t>(i);
        if (!again) of_distance[chosen[i]] -= 1.0f;
      }
    }
    double sum = 0;
    for (int64_t i = 0; i < heads_; ++i) sum += static_cast<double>(errors[i]) * static_cast<double>(errors[i]);
    row_errors_[static_cast<size_t>(row)] = sum;
  }

  // left: 1 at first, falling to 0, so that the last steps are small.
  void take_step(int64_t rows, float left) {
    ++steps_;
    first_power_ *= static_cast<double>(kFirstDecay);
    second_power_ *= static_cast<double>(kSecondDecay);
    const auto rate =
        static_cast<float>(static_cast<double>(kLearningRate * left) * std::sqrt(1.0 - second_power_) / (1.0 - first_power_));
    const int64_t input_tasks = parts_of(hidden_, kTaskInputs);
    const int64_t unit_tasks = parts_of(units_, kTaskUnits);
    pool_.run(input_tasks + unit_tasks + 1, [&](int64_t task, int) {
      if (task < input_tasks) return step_inputs(task * kTaskInputs, rows, rate);
      if (task < input_tasks + unit_tasks) return step_heads((task - input_tasks) * kTaskUnits, rows, rate);
      std::fill(biases_.gradient.begin(), biases_.gradient.end(), 0.0f);
      for (int64_t row = 0; row < rows; ++row) {
        kernels_.add(biases_.gradient.data(), head_errors_.data() + row * heads_, heads_, 1.0f);
      }
      biases_.step(0, heads_, rate);
    });
  }

  void step_inputs(int64_t first, int64_t rows, float rate) {
    const int64_t end = std::min(hidden_, first + kTaskInputs);
    kernels_.sum_products(
        {unit_weights_.gradient.data(), units_, inputs_.data(), 1, stride_, unit_errors_.data(), units_, units_, rows}, first, end);
    unit_weights_.step(first * units_, end * units_, rate);
  }

  void step_heads(int64_t first, int64_t rows, float rate) {
    const int64_t end = std::min(units_, first + kTaskUnits);
    kernels_.sum_products(
        {head_weights_.gradient.data(), heads_, activations_.data(), 1, units_, head_errors_.data(), heads_, heads_, rows}, first,
        end);
    head_weights_.step(first * heads_, end * heads_, rate);
    for (int64_t unit = first; unit < end; ++unit) {
      for (int64_t head = 0; head < heads_; ++head)
        heads_by_row_[static_cast<size_t>(head * units_ + unit)] = head_weight(unit, head);
    }
  }

  float head_weight(int64_t unit, int64_t head) const { return head_weights_.value[static_cast<size_t>(unit * heads_ + head)]; }

  LayerMaps stored() const {
    LayerMaps maps;
    quantize(maps.units, maps.unit_scales, units_, hidden_,
             [&](int64_t unit, int64_t input) { return unit_weights_.value[static_cast<size_t>(input * units_ + unit)]; });
    quantize(maps.heads, maps.head_scales, heads_, units_, [&](int64_t head, int64_t unit) { return head_weight(unit, head); });
    maps.biases = biases_.value;
    return maps;
  }

  const MapTraining& training_;
  const KernelTable& kernels_;
  cpu::ThreadPool pool_;
  std::mt19937_64 random_;  // the standard says its bits
  const int64_t hidden_;
  const int64_t units_;
  const int64_t heads_;  // experts of all distances
  const int64_t stride_;
  std::vector<int64_t> tokens_;  // those that count, in the order of the epoch
  // These hold values of the rows of a batch.
  std::vector<float> inputs_;
  std::vector<float> products_;
  std::vector<float> sigmoids_;
  std::vector<float> activations_;
  std::vector<float> unit_errors_;
  std::vector<float> head_errors_;
  std::vector<float> scores_;
  std::vector<double> row_errors_;
  Weights unit_weights_;  // hidden x units
  Weights head_weights_;  // units x heads
  Weights biases_;
  std::vector<float> heads_by_row_;  // head_weights_ as heads x units
  int64_t steps_ = 0;
  // Powers of the decays.
  double first_power_ = 1;
  double second_power_ = 1;
};

}  // namespace

LayerMaps train_expert_maps(const MapTraining& training, const EpochListener& on_epoch, const std::atomic<bool>& cancelled) {
  check_training(training);
  const ExactFloatEnvironment exact;
  return Trainer(training).train(on_epoch, cancelled);
}

}  // namespace odmoe
