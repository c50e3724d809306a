// Cases of operators on elements, vectors and rows.
#include "operator_cases.h"

#include <algorithm>
#include <random>

namespace odmoe {
namespace {

constexpr int kSeed = 1;
constexpr int kBatchRows = 256;

// Numbers of multiply-adds for which the functions of arithmetic.h count.
constexpr double kExp = 15;
constexpr double kSigmoid = kExp + 3;
constexpr double kTanh = kExp + 4;
constexpr double kSoftplus = kExp + 16;
constexpr double kGelu = kTanh + 7;

int64_t turns_of(int64_t input_floats, int64_t output_floats) {
  const int64_t floats = kTurnBytes / 4;
  const int64_t inputs = input_floats == 0 ? floats : floats / input_floats;
  const int64_t outputs = output_floats == 0 ? floats : floats / output_floats;
  return std::max<int64_t>(1, std::min(inputs, outputs));
}

// The part of the pools that one call uses.
struct Cut {
  Backend* backend;
  float* inputs;
  float* outputs;
  int64_t input_floats;
  int64_t output_floats;

  float* in(int64_t turn) const { return inputs + turn * input_floats; }
  float* out(int64_t turn) const { return outputs + turn * output_floats; }
};

Cut cut(const OperatorPools& pools, int64_t input_floats, int64_t output_floats) {
  return {pools.backend.get(), pools.inputs.floats(), pools.outputs.floats(), input_floats, output_floats};
}

struct Sizes {
  const char* model;
  int rows;
  int vectors;
  int size;

  int64_t count() const { return int64_t{rows} * vectors * size; }
  Vectors of(float* first) const { return {first, int64_t{vectors} * size, size, rows, vectors, size}; }
  std::string text() const {
    const std::string of = vectors == 1 ? std::to_string(size) : std::to_string(vectors) + " x " + std::to_string(size);
    return std::string(model) + ", " + of;
  }
};

// An operator on vectors: it reads `inputs` vectors besides its output; where it `changes` the output, it reads that, too.
template <class Run>
OperatorCaseMaker vectors_case(const char* operation, const Sizes& sizes, int inputs, bool changes, double multiply_adds, Run run) {
  return [=](const OperatorPools& pools) {
    const int64_t count = sizes.count();
    const Cut floats = cut(pools, inputs * count, count);
    const double bytes = 4.0 * static_cast<double>(count) * (inputs + 1 + (changes ? 1 : 0));
    return OperatorCase{operation,
                        sizes.text(),
                        sizes.rows,
                        bytes,
                        static_cast<double>(count) * multiply_adds,
                        turns_of(floats.input_floats, floats.output_floats),
                        [=](int64_t turn) { run(*floats.backend, sizes, floats.in(turn), floats.out(turn)); }};
  };
}

OperatorCaseMaker glu_case(const char* operation, const Sizes& sizes, const GluShape& shape, double multiply_adds) {
  return vectors_case(operation, sizes, 2, false, multiply_adds, [=](Backend& backend, const Sizes& of, float* in, float* out) {
    backend.glu(out, in, shape.bias ? in : nullptr, of.rows, of.size, shape);
  });
}

// One gate for all dimensions of a head.
OperatorCaseMaker head_gates_case() {
  return [](const OperatorPools& pools) {
    const Sizes sizes{"Laguna-XS.2", kBatchRows, 48, 128};
    const int64_t heads = int64_t{sizes.rows} * sizes.vectors;
    const Cut floats = cut(pools, heads, sizes.count());
    return OperatorCase{"gate of heads, softplus",
                        sizes.text(),
                        sizes.rows,
                        4.0 * static_cast<double>(2 * sizes.count() + heads),
                        static_cast<double>(sizes.count()) + static_cast<double>(heads) * kSoftplus,
                        turns_of(floats.input_floats, floats.output_floats),
                        [=](int64_t turn) {
                          const Vectors gates{floats.in(turn), sizes.vectors, 1, sizes.rows, sizes.vectors, 1};
                          floats.backend->gate(sizes.of(floats.out(turn)), gates, Gate::softplus);
                        }};
  };
}

OperatorCaseMaker combine_case() {
  return [](const OperatorPools& pools) {
    constexpr int kRanks = 8;
    constexpr int kSize = 2048;
    const int64_t count = int64_t{kBatchRows} * kSize;
    const Cut floats = cut(pools, (kRanks + 1) * count, count);
    auto weights = std::make_shared<std::vector<float>>(static_cast<size_t>(kBatchRows * kRanks), 0.125f);
    return OperatorCase{"combine",
                        "Qwen3-30B, 8 of 2048, and always",
                        kBatchRows,
                        4.0 * static_cast<double>(count) * (kRanks + 3),
                        static_cast<double>(count) * (kRanks + 2),
                        turns_of(floats.input_floats, floats.output_floats),
                        [=](int64_t turn) {
                          const float* const outputs = floats.in(turn);
                          floats.backend->combine({floats.out(turn), outputs, weights->data(), outputs + kRanks * count, nullptr,
                                                   kBatchRows, kRanks, kSize, 1.0f, true});
                        }};
  };
}

struct RouterSizes {
  const char* model;
  int experts;
  int k;
  RouterShape shape;
};

OperatorCaseMaker router_case(const RouterSizes& sizes, double multiply_adds) {
  return [=](const OperatorPools& pools) {
    const Cut floats = cut(pools, int64_t{kBatchRows} * sizes.experts, 0);
    auto experts = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(kBatchRows * sizes.k));
    auto weights = std::make_shared<std::vector<float>>(experts->size());
    return OperatorCase{"router",
                        std::string(sizes.model) + ", " + std::to_string(sizes.k) + " of " + std::to_string(sizes.experts),
                        kBatchRows,
                        4.0 * static_cast<double>(floats.input_floats) + 8.0 * static_cast<double>(experts->size()),
                        static_cast<double>(floats.input_floats) * multiply_adds,
                        turns_of(floats.input_floats, 0),
                        [=](int64_t turn) {
                          const float* const bias = sizes.shape.choice_bias ? floats.inputs : nullptr;
                          floats.backend->router({experts->data(),
                                                  weights->data(),
                                                  floats.in(turn),
                                                  kBatchRows,
                                                  sizes.experts,
                                                  sizes.k,
                                                  sizes.shape,
                                                  bias,
                                                  nullptr,
                                                  nullptr,
                                                  {}});
                        }};
  };
}

OperatorCaseMaker norm_case(const Sizes& sizes) {
  return vectors_case("norm", sizes, 1, false, 3, [](Backend& backend, const Sizes& of, float* in, float* out) {
    backend.normalize({of.of(out), of.of(in), in, static_cast<float>(of.size), 1e-6f, 1.0f});
  });
}

OperatorCaseMaker rotation_case(const char* operation, const Sizes& sizes, RotaryPairing pairing) {
  return [=](const OperatorPools& pools) {
    const int64_t pairs = int64_t{sizes.rows} * sizes.size / 2;
    // Rotations by these values keep the length of a vector.
    std::vector<float> turns(static_cast<size_t>(2 * pairs), 0.8f);
    std::fill(turns.begin() + pairs, turns.end(), 0.6f);
    const auto device_turns = std::make_shared<DeviceMemory>(pools.backend, float_bytes(2 * pairs));
    pools.backend->copy_to_device(device_turns->bytes(), turns.data(), float_bytes(2 * pairs));
    const auto run = [=](Backend& backend, const Sizes& of, float*, float* out) {
      backend.rotate({of.of(out), device_turns->floats(), device_turns->floats() + pairs, pairing});
    };
    return vectors_case(operation, sizes, 0, true, 2, run)(pools);
  };
}

constexpr int kStreams = 4;
constexpr int kStreamRounds = 20;

// Weights of a part: a few exponentials, and divisions, each of which counts as ten multiply-adds.
OperatorCaseMaker stream_weights_case() {
  return [](const OperatorPools& pools) {
    constexpr int kColumns = (2 + kStreams) * kStreams;
    constexpr int kMixed = kStreams * kStreams;
    const int64_t count = int64_t{kBatchRows} * kColumns;
    const Cut floats = cut(pools, 0, count);
    return OperatorCase{"stream_weights",
                        "DeepSeek-V4, 4 streams, 20 rounds",
                        kBatchRows,
                        8.0 * static_cast<double>(count),
                        kBatchRows * (kColumns * kSigmoid + 2.0 * kStreamRounds * kMixed * 11),
                        turns_of(0, count),
                        [=](int64_t turn) {
                          floats.backend->stream_weights(
                              {floats.out(turn), floats.inputs, floats.inputs, kBatchRows, kStreams, false, 1e-6f, kStreamRounds});
                        }};
  };
}

enum class StreamsCase : uint8_t { sum, mix, add };

// The input of a part, or the streams behind it, with or without a mix.
OperatorCaseMaker streams_case(StreamsCase of) {
  return [=](const OperatorPools& pools) {
    const bool adds = of == StreamsCase::add;
    const bool behind = of != StreamsCase::sum;
    const int size = adds ? 2816 : 4096;
    constexpr int64_t kColumns = int64_t{2 + kStreams} * kStreams;
    const int64_t count = int64_t{kBatchRows} * size;
    const Cut floats = behind ? cut(pools, count, kStreams * count) : cut(pools, kStreams * count, count);
    const double moved = behind ? 2 * kStreams + 1 : kStreams + 1;
    return OperatorCase{
        behind ? "mix_streams" : "sum_streams",
        adds ? "HY4, 4 x 2816, no mix" : "DeepSeek-V4, 4 x 4096",
        kBatchRows,
        4.0 * static_cast<double>(count) * moved,
        static_cast<double>(count) * (of == StreamsCase::mix ? (kStreams + 1) * kStreams : kStreams),
        turns_of(floats.input_floats, floats.output_floats),
        [=](int64_t turn) {
          float* const in = floats.in(turn);
          if (behind) {
            floats.backend->mix_streams({floats.out(turn), in, floats.inputs, kBatchRows, kStreams, size, !adds});
          } else {
            floats.backend->sum_streams({floats.out(turn), in, floats.inputs, kColumns, kBatchRows, kStreams, size});
          }
        }};
  };
}

}  // namespace

OperatorPools::OperatorPools(const std::shared_ptr<Backend>& of)
    : backend(of), inputs(of, static_cast<uint64_t>(kTurnBytes)), outputs(of, static_cast<uint64_t>(kTurnBytes)) {
  std::mt19937 generator(kSeed);
  std::uniform_real_distribution<float> values(-0.1f, 0.1f);
  std::vector<float> part(1 << 20);
  for (float& value : part) value = values(generator);
  const uint64_t bytes = part.size() * sizeof(float);
  for (uint64_t at = 0; at + bytes <= static_cast<uint64_t>(kTurnBytes); at += bytes) {
    of->copy_to_device(inputs.bytes() + at, part.data(), bytes);
    of->copy_to_device(outputs.bytes() + at, part.data(), bytes);
  }
}

std::vector<OperatorCaseMaker> element_cases() {
  const Sizes hidden{"Qwen3-30B", kBatchRows, 1, 2048};
  GluShape clamped{0, Activation::sigmoid, 1.702f, 7.0f, 1.0f, true};
  GluShape after{0, Activation::sigmoid, 1.0f, 7.0f, 0.0f, false, true};
  return {
      glu_case("glu", {"Qwen3-30B", kBatchRows, 1, 768}, {}, kSigmoid + 1),
      glu_case("glu, clamped, biases", {"gpt-oss-20b", kBatchRows, 1, 2880}, clamped, kSigmoid + 8),
      glu_case("glu, activation clamped", {"Step-3.5", kBatchRows, 1, 1280}, after, kSigmoid + 4),
      glu_case("glu, tanh", {"Gemma-4-26B", kBatchRows, 1, 704}, {0, Activation::tanh}, kGelu + 1),
      vectors_case("add", hidden, 1, true, 1,
                   [](Backend& backend, const Sizes& of, float* in, float* out) { backend.add(out, in, of.count(), 1.0f); }),
      vectors_case("scale", hidden, 0, true, 1,
                   [](Backend& backend, const Sizes& of, float*, float* out) { backend.scale(out, of.count(), 1.0f); }),
      vectors_case("add_bias", {"gpt-oss-20b", kBatchRows, 1, 4096}, 0, true, 1,
                   [](Backend& backend, const Sizes& of, float* in, float* out) { backend.add_bias(of.of(out), in); }),
      vectors_case("clip", {"OLMoE", kBatchRows, 1, 6144}, 0, true, 2,
                   [](Backend& backend, const Sizes& of, float*, float* out) { backend.clip(of.of(out), 8.0f); }),
      vectors_case(
          "gate, sigmoid", {"Qwen3-Next", kBatchRows, 16, 256}, 1, true, kSigmoid + 1,
          [](Backend& backend, const Sizes& of, float* in, float* out) { backend.gate(of.of(out), of.of(in), Gate::sigmoid); }),
      head_gates_case(),
      vectors_case("multiply_elements", {"LFM2-8B", kBatchRows, 1, 2048}, 2, false, 1,
                   [](Backend& backend, const Sizes& of, float* in, float* out) {
                     backend.multiply_elements(of.of(out), of.of(in), of.of(in + of.count()));
                   }),
      vectors_case("cap_logits", {"Gemma-4-26B", 1, 1, 262144}, 0, true, kTanh + 3,
                   [](Backend& backend, const Sizes& of, float*, float* out) { backend.cap_logits(out, of.count(), 1.0f, 30.0f); }),
      combine_case(),
      stream_weights_case(),
      streams_case(StreamsCase::sum),
      streams_case(StreamsCase::mix),
      streams_case(StreamsCase::add),
  };
}

std::vector<OperatorCaseMaker> norm_cases() {
  RouterShape normalized;
  normalized.normalize = true;
  RouterShape grouped{RouterScore::sigmoid, false, true, 8, 4, GroupScore::best_two, true, 1e-20f};
  RouterShape soft{RouterScore::sqrt_softplus, false, true};
  soft.normalize = true;
  RouterShape sparsemixer;
  sparsemixer.score = RouterScore::sparsemixer;
  sparsemixer.jitter = 0.01f;
  return {
      norm_case({"Qwen3-30B", kBatchRows, 1, 2048}),
      norm_case({"Qwen3-30B", kBatchRows, 32, 128}),
      vectors_case("layer_norm", {"Phi-3.5-MoE", kBatchRows, 1, 4096}, 1, false, 6,
                   [](Backend& backend, const Sizes& of, float* in, float* out) {
                     backend.layer_norm(out, in, in, in + of.size, of.rows, of.size, 1e-5f);
                   }),
      rotation_case("rotate halves", {"Qwen3-30B", kBatchRows, 32, 128}, RotaryPairing::halves),
      rotation_case("rotate neighbours", {"DeepSeek-V2-Lite", kBatchRows, 16, 64}, RotaryPairing::neighbours),
      router_case({"Qwen3-30B", 128, 8, normalized}, kExp + 4),
      router_case({"DeepSeek-V2-Lite", 64, 6, {}}, kExp + 4),
      router_case({"DeepSeek-V3", 256, 8, grouped}, kSigmoid + 3),
      router_case({"DeepSeek-V4", 256, 6, soft}, kSigmoid + 12),
      router_case({"Phi-3.5-MoE", 16, 2, sparsemixer}, 2 * (kExp + 6)),
  };
}

}  // namespace odmoe
