#include <algorithm>
#include <chrono>
#include <string>

#include "cuda_bench.h"

namespace odmoe::cuda_bench {
namespace {

struct ExpertShape {
  const char* model;
  int64_t hidden;
  int64_t intermediate;
  double aim;  // share of the copy bandwidth of a fused BF16 expert with one token; 0: none
};

constexpr ExpertShape kShapes[] = {
    {"Mixtral-8x7B", 4096, 14336, 0.8},
    {"Qwen3-30B-A3B", 2048, 768, 0.6},
    {"DeepSeek-V2-Lite", 2048, 1408, 0},
};
constexpr ExpertShape kSmokeShape = {"tiny", 256, 128, 0};
// A format, and which slices of it are read.
struct Weights {
  WeightFormat format;
  SliceReading reading = SliceReading::both;

  std::string name() const { return std::string(format_name(format)) + (reading == SliceReading::both ? "" : " (upper slice)"); }
};
constexpr Weights kWeights[] = {{WeightFormat::bf16},
                                {WeightFormat::int8},
                                {WeightFormat::nf4},
                                {WeightFormat::fixed4},
                                {WeightFormat::sliced84},
                                {WeightFormat::sliced84, SliceReading::upper_centred},
                                {WeightFormat::sliced63, SliceReading::upper_centred},
                                {WeightFormat::sliced42, SliceReading::upper_centred}};
// Together far larger than any device's cache.
constexpr double kExpertsBytes = 768.0 * (1 << 20);
constexpr int kPrefillTokens = 512;

struct BenchExpert {
  BenchExpert(Bench& bench, const Weights& weights, const ExpertShape& shape)
      : gate_up(bench, weights.format, 2 * shape.intermediate, shape.hidden, weights.reading),
        down(bench, weights.format, shape.hidden, shape.intermediate, weights.reading) {}
  BenchMatrix gate_up;
  BenchMatrix down;
};

// Experts of one shape and format, enough of them that none is still in a cache at its next turn, and activations.
class ExpertSet {
 public:
  ExpertSet(Bench& bench, const Weights& weights, const ExpertShape& shape, int tokens, double bytes)
      : backend_(*bench.backend()),
        weights_(weights),
        shape_(shape),
        input_(bench.backend(), float_bytes(tokens * shape.hidden)),
        gate_up_(bench.backend(), float_bytes(2 * tokens * shape.intermediate)),
        activation_(bench.backend(), float_bytes(tokens * shape.intermediate)),
        output_(bench.backend(), float_bytes(tokens * shape.hidden)) {
    const auto count = std::max<int64_t>(2, static_cast<int64_t>(bytes / expert_bytes()));
    for (int64_t i = 0; i < (bench.smoke() ? 2 : count); ++i) {
      experts_.push_back(std::make_unique<BenchExpert>(bench, weights, shape));
    }
    std::vector<float> values(static_cast<size_t>(tokens * shape.hidden));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) * 0.125f - 1.0f;
    backend_.copy_to_device(input_.floats(), values.data(), values.size() * sizeof(float));
  }

  double expert_bytes() const { return matrix_bytes(2 * shape_.intermediate, shape_.hidden) + down_bytes(); }
  double down_bytes() const { return matrix_bytes(shape_.hidden, shape_.intermediate); }

  void multiply_down(int64_t run) {
    backend_.matmul(output_.floats(), shape_.hidden, expert(run).down.matrix, activation_.floats(), shape_.intermediate, 1);
  }
  // Runs one expert like run_experts.
  void run_expert(int64_t run, int tokens) {
    const Product gated{activation_.floats(), shape_.intermediate, &expert(run).gate_up.matrix,
                        input_.floats(),      shape_.hidden,       tokens};
    backend_.multiply_glu(&gated, 1, gate_up_.floats(), {}, nullptr);
    backend_.matmul(output_.floats(), shape_.hidden, expert(run).down.matrix, activation_.floats(), shape_.intermediate, tokens);
  }

 private:
  double matrix_bytes(int64_t rows, int64_t columns) const {
    return bytes_read(backend_, weights_.format, rows, columns, weights_.reading);
  }
  const BenchExpert& expert(int64_t run) const { return *experts_[static_cast<size_t>(run) % experts_.size()]; }

  Backend& backend_;
  const Weights weights_;
  const ExpertShape shape_;
  DeviceMemory input_;
  DeviceMemory gate_up_;
  DeviceMemory activation_;
  DeviceMemory output_;
  std::vector<std::unique_ptr<BenchExpert>> experts_;
};

Figure bandwidth(const std::string& what, double bytes, const Bench::Measured& measured) {
  return {"expert", what, bytes / measured.seconds * 1e-9, "GB/s", measured.copy_share, {}, {}};
}

void measure_shape(Bench& bench, const ExpertShape& shape) {
  for (const Weights& weights : kWeights) {
    const std::string name = std::string(shape.model) + " " + weights.name();
    ExpertSet set(bench, weights, shape, 16, kExpertsBytes);
    const double down = set.down_bytes();
    bench.add(bandwidth(name + ", GEMV (down)", down, bench.beside_copies(down, [&](int64_t run) { set.multiply_down(run); })));
    const double whole = set.expert_bytes();
    for (const int tokens : {1, 4, 16}) {
      const auto measured = bench.beside_copies(whole, [&](int64_t run) { set.run_expert(run, tokens); });
      Figure figure =
          bandwidth(name + ", fused, " + std::to_string(tokens) + (tokens == 1 ? " token" : " tokens"), whole, measured);
      if (weights.format == WeightFormat::bf16 && tokens == 1 && shape.aim > 0) figure.aim = shape.aim;
      bench.add(figure);
      if (tokens > 1) continue;
      const double count = 3.0 * static_cast<double>(shape.hidden * shape.intermediate);
      bench.add({"expert", name + ", fused, weights", count / measured.seconds * 1e-9, "G/s", {}, {}, {}});
    }
  }
}

double median_us(std::vector<std::chrono::duration<double>> times) {
  std::sort(times.begin(), times.end());
  return 1e6 * times[times.size() / 2].count();
}

// Loads into two slots in turns an expert that neither had before, without any write: this measures only the move.
void measure_moves(Bench& bench, const ExpertShape& shape) {
  constexpr int kSlots = 2;
  using Clock = std::chrono::steady_clock;
  Backend& backend = *bench.backend();
  const int moves = bench.smoke() ? 4 : 200;
  const auto memory =
      backend.allocate_experts({.slots = kSlots,
                                .experts = moves,
                                .gate_up_bytes = backend.matrix_bytes(WeightFormat::bf16, 2 * shape.intermediate, shape.hidden),
                                .down_bytes = backend.matrix_bytes(WeightFormat::bf16, shape.hidden, shape.intermediate)});
  std::vector<std::chrono::duration<double>> asked;
  std::vector<std::chrono::duration<double>> moved;
  for (int expert = 0; expert < moves; ++expert) {
    const int slot = expert % kSlots;
    const auto start = Clock::now();
    memory->begin_load(slot, expert);
    const auto begun = Clock::now();
    // Does what the first piece's write does before it writes.
    memory->end_load(slot, true);
    moved.push_back(Clock::now() - begun);
    asked.push_back(begun - start);
    memory->begin_read(slot);  // throws if the slot has not moved
    memory->end_read(slot);
  }
  const std::string name = std::string(shape.model) + " bf16, ";
  bench.add({"paging", name + "a load is asked for (on the event loop)", median_us(asked), "us", {}, {}, {}});
  bench.add({"paging", name + "its slot is mapped there (on a loader's thread)", median_us(moved), "us", {}, {}, {}});
}

}  // namespace

void measure_paging(Bench& bench) {
  if (!bench.backend()->info().paged_experts) return;
  if (bench.smoke()) {
    measure_moves(bench, kSmokeShape);
    return;
  }
  for (const ExpertShape& shape : kShapes) measure_moves(bench, shape);
}

void measure_experts(Bench& bench) {
  if (bench.smoke()) {
    measure_shape(bench, kSmokeShape);
    return;
  }
  for (const ExpertShape& shape : kShapes) measure_shape(bench, shape);
}

void measure_prefill(Bench& bench) {
  const ExpertShape shape = bench.smoke() ? kSmokeShape : kShapes[0];
  const int tokens = bench.smoke() ? 24 : kPrefillTokens;
  const double peak = bench.speed().peak_flops();
  for (const Weights& weights : {Weights{WeightFormat::bf16}, Weights{WeightFormat::fixed4}, Weights{WeightFormat::sliced84},
                                 Weights{WeightFormat::sliced84, SliceReading::upper_centred}}) {
    ExpertSet set(bench, weights, shape, tokens, 0);
    const double seconds = bench.seconds_of([&](int64_t run) { set.run_expert(run, tokens); });
    const double flops = 2.0 * tokens * 3.0 * static_cast<double>(shape.hidden * shape.intermediate) / seconds;
    Figure figure{"prefill",
                  std::string(shape.model) + " " + weights.name() + ", " + std::to_string(tokens) + " tokens",
                  flops * 1e-12,
                  "TFLOP/s",
                  {},
                  {},
                  {}};
    if (peak > 0) figure.peak_share = flops / peak;
    bench.add(figure);
  }
}

}  // namespace odmoe::cuda_bench
