#include <cmath>
#include <string>

#include "cuda_bench.h"
#include "odmoe/arithmetic.h"

namespace odmoe::cuda_bench {
namespace {

struct LayerShape {
  const char* model;
  int64_t hidden;
  AttentionShape attention;
  int experts;
  int experts_per_token;
  int32_t position;
  int layers;  // number of layers in turn, so that none is still in a cache at its next turn
};

AttentionShape attention_of(int heads, int kv_heads, int head_dim) {
  AttentionShape shape;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = shape.value_dim = head_dim;
  shape.score_scale = 1 / std::sqrt(static_cast<float>(head_dim));
  return shape;
}

const LayerShape kMixtral = {
    "Mixtral-8x7B bf16, dense part of a layer, 1 row at 1000 positions", 4096, attention_of(32, 8, 128), 8, 2, 999, 8};
const LayerShape kTiny = {"tiny bf16, dense part of a layer, 1 row at 300 positions", 256, attention_of(4, 2, 64), 8, 2, 299, 2};
constexpr float kEpsilon = 1e-5f;

// A layer without its experts, as a pass runs it.
class DenseLayer {
 public:
  DenseLayer(Bench& bench, const LayerShape& shape)
      : backend_(*bench.backend()),
        shape_(shape),
        qkv_(bench, WeightFormat::bf16, queries() + 2 * keys(), shape.hidden),
        output_(bench, WeightFormat::bf16, shape.hidden, queries()),
        gate_(bench, WeightFormat::bf16, shape.experts, shape.hidden) {
    const int blocks = shape.position / kAttentionChunk + 1;
    for (int i = 0; i < 2 * blocks; ++i) {
      cache_.emplace_back(bench.backend(), float_bytes(keys() * kAttentionChunk));
      (i < blocks ? key_blocks_ : value_blocks_).push_back(cache_.back().floats());
    }
  }

  // buffers: see LayerBuffers.
  template <typename Buffers>
  void run(Buffers& buffers) {
    const AttentionShape& attention = shape_.attention;
    const int64_t stride = queries() + 2 * keys();
    float* const qkv = buffers.qkv.floats();
    const AttentionRow row{{key_blocks_.data(), value_blocks_.data()}, shape_.position};
    normalize(buffers);
    backend_.matmul(qkv, stride, qkv_.matrix, buffers.normed.floats(), shape_.hidden, 1);
    for (const auto& [first, heads] : {std::pair{qkv, attention.heads}, std::pair{qkv + queries(), attention.kv_heads}}) {
      backend_.rotate({{first, stride, attention.head_dim, 1, heads, attention.head_dim},
                       buffers.cos.floats(),
                       buffers.sin.floats(),
                       RotaryPairing::halves});
    }
    backend_.store_and_attend(buffers.attended.floats(), &row, qkv, qkv + queries(), qkv + queries() + keys(), stride, 1,
                              attention);
    backend_.matmul(buffers.normed.floats(), shape_.hidden, output_.matrix, buffers.attended.floats(), queries(), 1);
    backend_.add(buffers.residual.floats(), buffers.normed.floats(), shape_.hidden, 1.0f);
    normalize(buffers);
    backend_.matmul(buffers.logits.floats(), shape_.experts, gate_.matrix, buffers.normed.floats(), shape_.hidden, 1);
    route(buffers);
  }

  double bytes() const {
    const double weights = bytes_read(backend_, WeightFormat::bf16, queries() + 2 * keys(), shape_.hidden) +
                           bytes_read(backend_, WeightFormat::bf16, shape_.hidden, queries()) +
                           bytes_read(backend_, WeightFormat::bf16, shape_.experts, shape_.hidden);
    return weights + 2.0 * sizeof(float) * static_cast<double>(keys() * (shape_.position + 1));
  }

 private:
  template <typename Buffers>
  void normalize(Buffers& buffers) {
    const auto hidden = static_cast<int>(shape_.hidden);
    const auto row_of = [&](const DeviceMemory& memory) { return Vectors{memory.floats(), hidden, hidden, 1, 1, hidden}; };
    backend_.normalize(
        {row_of(buffers.normed), row_of(buffers.residual), buffers.norm.floats(), static_cast<float>(hidden), kEpsilon, 1.0f});
  }

  template <typename Buffers>
  void route(Buffers& buffers) {
    int32_t experts[8];
    float weights[8];
    RouterWork work;
    work.host_experts = experts;
    work.host_weights = weights;
    work.logits = buffers.logits.floats();
    work.n = 1;
    work.experts = shape_.experts;
    work.k = shape_.experts_per_token;
    work.shape.normalize = true;
    backend_.router(work);
  }

  int64_t queries() const { return int64_t{shape_.attention.heads} * shape_.attention.head_dim; }
  int64_t keys() const { return int64_t{shape_.attention.kv_heads} * shape_.attention.head_dim; }

  Backend& backend_;
  const LayerShape shape_;
  BenchMatrix qkv_;
  BenchMatrix output_;
  BenchMatrix gate_;
  std::vector<DeviceMemory> cache_;
  std::vector<float*> key_blocks_;
  std::vector<float*> value_blocks_;
};

// Activations of one row. They are zeros, which cost as much as other numbers.
struct LayerBuffers {
  LayerBuffers(const std::shared_ptr<Backend>& backend, const LayerShape& shape)
      : residual(backend, float_bytes(shape.hidden)),
        normed(backend, float_bytes(shape.hidden)),
        norm(backend, float_bytes(shape.hidden)),
        qkv(backend, float_bytes((shape.attention.heads + 2 * shape.attention.kv_heads) * shape.attention.head_dim)),
        attended(backend, float_bytes(shape.attention.heads * shape.attention.head_dim)),
        cos(backend, float_bytes(shape.attention.head_dim / 2)),
        sin(backend, float_bytes(shape.attention.head_dim / 2)),
        logits(backend, float_bytes(shape.experts)) {}
  DeviceMemory residual, normed, norm, qkv, attended, cos, sin, logits;
};

}  // namespace

void measure_dense_layer(Bench& bench) {
  const LayerShape& shape = bench.smoke() ? kTiny : kMixtral;
  LayerBuffers buffers(bench.backend(), shape);
  std::vector<std::unique_ptr<DenseLayer>> layers;
  for (int i = 0; i < shape.layers; ++i) layers.push_back(std::make_unique<DenseLayer>(bench, shape));
  const auto measured =
      bench.beside_copies(layers[0]->bytes(), [&](int64_t run) { layers[static_cast<size_t>(run) % layers.size()]->run(buffers); });
  bench.add({"layer", shape.model, measured.seconds * 1e6, "us", measured.copy_share, {}, {}});
}

}  // namespace odmoe::cuda_bench
