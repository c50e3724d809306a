// Mixers other than Mixtral's attention: latent attention in its absorbed form, and the gated delta net's recurrence.
#include <string>

#include "cuda_bench.h"
#include "odmoe/arithmetic.h"

namespace odmoe::cuda_bench {
namespace {

struct LatentShape {
  const char* model;
  int heads;
  int latent_size;
  int rope_size;
  int nope_size;
  int value_size;
  int32_t position;
  int layers;  // number of layers in turn, so that none is still in a cache at its next turn
};

constexpr LatentShape kLatentShapes[] = {
    {"DeepSeek-V3 bf16, latent attention, 1 row at 4000 positions", 128, 512, 64, 128, 128, 3999, 4},
    {"DeepSeek-V2-Lite bf16, latent attention, 1 row at 4000 positions", 16, 512, 64, 128, 128, 3999, 16},
};
constexpr LatentShape kSmokeLatentShape = {"tiny bf16, latent attention, 1 row at 300 positions", 12, 32, 8, 16, 16, 299, 2};

// The operators between a layer's projections: they map queries into the latent space, attend there, and map values out of it.
class LatentLayer {
 public:
  LatentLayer(Bench& bench, const LatentShape& shape) : backend_(*bench.backend()), shape_(shape) {
    for (int head = 0; head < shape.heads; ++head) {
      expansions_.push_back(std::make_unique<BenchMatrix>(bench, WeightFormat::bf16, shape.latent_size, shape.nope_size));
      expansions_.push_back(std::make_unique<BenchMatrix>(bench, WeightFormat::bf16, shape.value_size, shape.latent_size));
    }
    for (int block = 0; block <= shape.position / kAttentionChunk; ++block) {
      cache_.emplace_back(bench.backend(), float_bytes(key_size() * kAttentionChunk));
      blocks_.push_back(cache_.back().floats());
    }
  }

  // projected: heads x (nope + rope); queries: heads x key size and a key; attended: heads x latent size; out: heads x value size.
  void run(float* projected, float* queries, float* attended, float* out) {
    const int64_t projected_head = shape_.nope_size + shape_.rope_size;
    multiply_heads(0, queries, key_size(), projected, projected_head);
    const AttentionRow row{{blocks_.data(), nullptr}, shape_.position};
    const int64_t stride = (shape_.heads + 1) * key_size();
    backend_.store_and_attend(attended, &row, queries, queries + shape_.heads * key_size(), nullptr, stride, 1, attention());
    multiply_heads(1, out, shape_.value_size, attended, shape_.latent_size);
  }

  double bytes() const {
    const double weights = bytes_read(backend_, WeightFormat::bf16, shape_.latent_size, shape_.nope_size) +
                           bytes_read(backend_, WeightFormat::bf16, shape_.value_size, shape_.latent_size);
    return shape_.heads * weights + sizeof(float) * static_cast<double>(key_size() * (shape_.position + 1));
  }
  int64_t key_size() const { return shape_.latent_size + shape_.rope_size; }

 private:
  AttentionShape attention() const {
    AttentionShape attention;
    attention.heads = shape_.heads;
    attention.kv_heads = 1;
    attention.head_dim = static_cast<int>(key_size());
    attention.value_dim = shape_.latent_size;
    attention.values_in_keys = true;
    attention.score_scale = 0.1f;
    return attention;
  }

  // Multiplies by one of each head's two matrices.
  void multiply_heads(int which, float* out, int64_t out_step, const float* in, int64_t in_step) {
    std::vector<Product> products;
    for (int64_t head = 0; head < shape_.heads; ++head) {
      const Matrix& weights = expansions_[static_cast<size_t>(2 * head + which)]->matrix;
      products.push_back(
          {out + head * out_step, shape_.heads * out_step, &weights, in + head * in_step, shape_.heads * in_step, 1});
    }
    backend_.multiply(products.data(), shape_.heads);
  }

  Backend& backend_;
  const LatentShape shape_;
  std::vector<std::unique_ptr<BenchMatrix>> expansions_;
  std::vector<DeviceMemory> cache_;
  std::vector<float*> blocks_;
};

void measure_latent(Bench& bench, const LatentShape& shape) {
  std::vector<std::unique_ptr<LatentLayer>> layers;
  for (int i = 0; i < shape.layers; ++i) layers.push_back(std::make_unique<LatentLayer>(bench, shape));
  const auto floats = [&](int64_t count) { return DeviceMemory(bench.backend(), float_bytes(count)); };
  const DeviceMemory projected = floats(int64_t{shape.heads} * (shape.nope_size + shape.rope_size));
  const DeviceMemory queries = floats((shape.heads + 1) * layers[0]->key_size());
  const DeviceMemory attended = floats(int64_t{shape.heads} * shape.latent_size);
  const DeviceMemory out = floats(int64_t{shape.heads} * shape.value_size);
  const auto measured = bench.beside_copies(layers[0]->bytes(), [&](int64_t run) {
    layers[static_cast<size_t>(run) % layers.size()]->run(projected.floats(), queries.floats(), attended.floats(), out.floats());
  });
  bench.add({"mixer", shape.model, measured.seconds * 1e6, "us", measured.copy_share, {}, {}});
}

struct DeltaShape {
  const char* model;
  int key_heads;
  int value_heads;
  int head_dim;
  int taps;
  int layers;
};

constexpr DeltaShape kDeltaShape = {"Qwen3-Next, convolution and delta rule", 16, 32, 128, 4, 16};
constexpr DeltaShape kSmokeDeltaShape = {"tiny, convolution and delta rule", 2, 4, 128, 4, 2};

// Measures the recurrence of `rows` rows of one sequence, with a state for each layer.
void measure_delta(Bench& bench, const DeltaShape& shape, int rows) {
  Backend& backend = *bench.backend();
  const int64_t key_size = int64_t{shape.key_heads} * shape.head_dim;
  const int64_t value_size = int64_t{shape.value_heads} * shape.head_dim;
  const int64_t channels = 2 * key_size + value_size;
  const auto floats = [&](int64_t count) { return DeviceMemory(bench.backend(), float_bytes(count)); };
  const DeviceMemory in = floats(rows * channels);
  const DeviceMemory convolved = floats(rows * channels);
  const DeviceMemory gates = floats(int64_t{2} * rows * shape.value_heads);
  const DeviceMemory of_heads = floats(shape.value_heads);
  const DeviceMemory weight = floats(shape.taps * channels);
  const DeviceMemory out = floats(rows * value_size);
  std::vector<DeviceMemory> tails;
  std::vector<DeviceMemory> states;
  for (int i = 0; i < shape.layers; ++i) tails.push_back(floats((shape.taps - 1) * channels));
  for (int i = 0; i < shape.layers; ++i) states.push_back(floats(value_size * shape.head_dim));
  const auto launch = [&](int64_t run) {
    const size_t layer = static_cast<size_t>(run) % states.size();
    const ConvolutionWork convolution{convolved.floats(), channels, in.floats(), channels, tails[layer].floats(),
                                      weight.floats(),    rows,     shape.taps,  channels, true};
    backend.convolve(&convolution, 1);
    const DeltaWork rule{out.floats(),
                         value_size,
                         convolved.floats(),
                         convolved.floats() + key_size,
                         convolved.floats() + 2 * key_size,
                         channels,
                         gates.floats(),
                         gates.floats() + shape.value_heads,
                         int64_t{2} * shape.value_heads,
                         of_heads.floats(),
                         of_heads.floats(),
                         states[layer].floats(),
                         rows,
                         shape.key_heads,
                         shape.value_heads,
                         shape.head_dim,
                         shape.head_dim};
    backend.delta_rule(&rule, 1);
  };
  // States are read and written.
  const double bytes = sizeof(float) * static_cast<double>(2 * value_size * shape.head_dim + rows * (3 * channels + value_size));
  const auto measured = bench.beside_copies(bytes, launch);
  bench.add({"mixer",
             std::string(shape.model) + ", " + std::to_string(rows) + (rows == 1 ? " row" : " rows"),
             measured.seconds * 1e6,
             "us",
             measured.copy_share,
             {},
             {}});
}

}  // namespace

void measure_mixers(Bench& bench) {
  if (bench.smoke()) {
    measure_latent(bench, kSmokeLatentShape);
    measure_delta(bench, kSmokeDeltaShape, 3);
    return;
  }
  for (const LatentShape& shape : kLatentShapes) measure_latent(bench, shape);
  for (const int rows : {1, 512}) measure_delta(bench, kDeltaShape, rows);
}

}  // namespace odmoe::cuda_bench
