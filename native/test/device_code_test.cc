// Arithmetic and division of work of the CUDA kernels, in functions that the host can run: against the one arithmetic and the CPU's
// scalar kernels.
#include <algorithm>
#include <cmath>
#include <limits>

#include "activations.h"
#include "attention_work.h"
#include "elementwise_code.h"
#include "native_tests.h"
#include "reference_arithmetic.h"

namespace odmoe::test {
namespace {

float float_of(uint32_t bits) { return cuda::float_of_bits(bits); }

// Floats of all kinds: every sign and exponent with many mantissas, and values next to the limits of exp().
std::vector<float> all_kinds() {
  std::vector<float> values;
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 4099) values.push_back(float_of(static_cast<uint32_t>(bits)));
  for (const float edge : {0.0f, 1.0f, kExpLowest, kExpHighest, 88.7228394f, -87.3365479f, -103.278931f, INFINITY,
                           std::numeric_limits<float>::max(), std::numeric_limits<float>::min(), 0x1p-149f}) {
    for (int step = -3; step <= 3; ++step) {
      const uint32_t bits = cuda::bits_of_float(edge) + static_cast<uint32_t>(step);
      values.push_back(float_of(bits));
      values.push_back(-float_of(bits));
    }
  }
  return values;
}

void exponentials() {
  const std::vector<float> values = all_kinds();
  std::vector<float> got;
  std::vector<float> expected;
  for (const float value : values) {
    got.push_back(cuda::exponential(value));
    expected.push_back(reference_exp(value));
  }
  check_same(got, expected, "exponential");
}

void activations() {
  const std::vector<float> gates = all_kinds();
  std::vector<float> ups = gates;
  std::shuffle(ups.begin(), ups.end(), std::mt19937(5));
  std::vector<float> both = gates;
  both.insert(both.end(), ups.begin(), ups.end());
  auto backend = open_backend("scalar");
  DeviceFloats gate_up(*backend, both);
  DeviceFloats out(*backend, gates.size());
  const GluShape shapes[] = {{},
                             {0, Activation::sigmoid, 1.702f, 7.0f, 1.0f, true},
                             {0, Activation::tanh, 1.0f, 0.0f, 0.0f, false},
                             {0, Activation::sigmoid, 1.0f, 0.5f, 0.0f, false, true}};
  for (const GluShape& shape : shapes) {
    backend->glu(out.data(), gate_up.data(), nullptr, 1, static_cast<int>(gates.size()), shape);
    std::vector<float> got;
    for (size_t i = 0; i < gates.size(); ++i) got.push_back(cuda::glu_of(gates[i], ups[i], shape));
    check_same(got, out.read(), "glu_of");
  }
}

void functions() {
  for (const float value : all_kinds()) {
    check_same({cuda::sigmoid_of(value), cuda::silu_of(value), cuda::tanh_of(value), cuda::softplus_of(value)},
               {reference_sigmoid(value), reference_silu(value), reference_tanh(value), reference_softplus(value)},
               "sigmoid, silu, tanh, softplus of " + std::to_string(value));
    check_same({cuda::clipped(value, 3.0f)}, {reference_limited(value, 3.0f)}, "clipped");
    if (value >= std::numeric_limits<float>::min() && value < INFINITY) {
      check_same({cuda::logarithm(value)}, {reference_log(value)}, "logarithm");
    }
  }
}

// Rotated pairs, normalized values and weighted sums of these against the scalar kernels.
void elements() {
  std::vector<float> a = all_kinds();
  std::vector<float> b = a;
  std::shuffle(b.begin(), b.end(), std::mt19937(6));
  const size_t count = a.size();
  const auto size = static_cast<int>(count);
  std::vector<float> both = a;
  both.insert(both.end(), b.begin(), b.end());
  auto backend = open_backend("scalar");
  const std::vector<float> cos = random_values(count, 7);
  const std::vector<float> sin = random_values(count, 8);
  DeviceFloats pairs(*backend, both);
  DeviceFloats device_cos(*backend, cos);
  DeviceFloats device_sin(*backend, sin);
  const Vectors heads{pairs.data(), 2 * size, 2 * size, 1, 1, 2 * size};
  backend->rotate({heads, device_cos.data(), device_sin.data(), RotaryPairing::halves});
  DeviceFloats sums(*backend, count);
  DeviceFloats outputs(*backend, both);
  const float weights[2] = {0.3f, 0x1.9p-3f};
  backend->combine({sums.data(), outputs.data(), weights, nullptr, nullptr, 1, 2, size, 1.0f, true});
  std::vector<float> turned = both;
  std::vector<float> summed(count);
  for (size_t i = 0; i < count; ++i) {
    cuda::rotate_pair(turned[i], turned[count + i], cos[i], sin[i]);
    summed[i] = 0.0f + cuda::weighted_sum(1, weights[1], b[i], cuda::weighted_sum(0, weights[0], a[i], 0.0f));
  }
  check_same(turned, pairs.read(), "rotate_pair");
  check_same(summed, sums.read(), "weighted_sum");
}

void norms() {
  auto backend = open_backend("scalar");
  const std::vector<float> weight = random_values(100, 10);
  for (const float scale : {1.0f, 0x1p-140f, 0x1p+60f, 0x1p+70f}) {
    std::vector<float> row = random_values(100, 9);
    for (float& value : row) value *= scale;
    DeviceFloats in(*backend, row);
    DeviceFloats by(*backend, weight);
    DeviceFloats out(*backend, row.size());
    const auto row_of = [](const DeviceFloats& floats) { return Vectors{floats.data(), 100, 100, 1, 1, 100}; };
    backend->normalize({row_of(out), row_of(in), by.data(), 100.0f, 1e-6f, 1.0f});
    const float root = cuda::norm_root(reference_dot(row, row), 100.0f, 1e-6f);
    std::vector<float> got;
    for (size_t i = 0; i < row.size(); ++i) got.push_back(cuda::divided(row[i], root) * weight[i]);
    check_same(got, out.read(), "norm_root");
  }
}

void visible_chunks() {
  for (int window = 0; window < 900; window += window < 5 ? 1 : window % 256 > 253 || window % 256 < 3 ? 1 : 50) {
    int most = 0;
    for (int position = 0; position < 1600; ++position) {
      const int first = cuda::first_visible(position, window);
      check(first == (window > 0 ? std::max(0, position + 1 - window) : 0), "first_visible");
      most = std::max(most, position / kAttentionChunk - first / kAttentionChunk + 1);
      const int bound = cuda::most_visible_chunks(position, window);
      check(bound >= most && bound <= most + 1, "most_visible_chunks(" + std::to_string(position) + ", " + std::to_string(window) +
                                                    ") is " + std::to_string(bound) + "; a row sees " + std::to_string(most));
    }
  }
}

// Tiles that share keys or values leave enough blocks.
void check_shared_tiles(int n, int chunks, const AttentionShape& shape, const cuda::AttentionTiles& tiles) {
  const int together = cuda::tiles_of_score_block(n, chunks, shape, tiles);
  check(cuda::kScoreWarps % together == 0 && together <= std::max(1, tiles.per_group), "tiles that share keys");
  const int64_t blocks = int64_t{(n + tiles.rows - 1) / tiles.rows} * shape.kv_heads * tiles.per_group * chunks * 2;
  check(together == 1 || blocks / together >= cuda::kBlocksToShareKeys, "tiles that share keys leave few blocks");
  const cuda::AttentionTiles values = cuda::value_tiles(n, chunks, shape);
  const int group = shape.heads / shape.kv_heads;
  check(values.heads * values.per_group >= group && values.heads * values.rows <= values.queries, "tiles of values take all heads");
  check(values.queries <= (group > cuda::kMostTileQueries ? cuda::kMostValueQueries : cuda::kMostTileQueries), "a tile of values");
}

void tiles() {
  for (int group = 1; group <= 40; ++group) {
    const AttentionShape shape{2 * group, 2, 128, 128};
    for (const int n : {1, 2, 5, 7, 16, 33, 64, 512}) {
      for (const int chunks : {1, 2, 16, 128, 512}) {
        const cuda::AttentionTiles tiles = cuda::attention_tiles(n, chunks, shape);
        check_shared_tiles(n, chunks, shape, tiles);
        check(tiles.queries == 1 || tiles.queries == 2 || tiles.queries == 4 || tiles.queries == 8, "places of a tile");
        check(tiles.rows >= 1 && tiles.heads * tiles.rows <= tiles.queries, "a tile holds its queries");
        check(tiles.heads * tiles.per_group >= group, "tiles take all heads");
        const int blocks_of_rows = shape.kv_heads * tiles.per_group * chunks;
        const auto enough = [&](int rows) { return n * blocks_of_rows >= rows * cuda::kAttentionBlocks; };
        check(tiles.rows == 1 || enough(tiles.rows), "more rows than leave enough blocks");
        const bool full = (tiles.rows + 1) * tiles.heads > cuda::kMostTileQueries;
        check(full || !enough(tiles.rows + 1), "fewer rows than leave enough blocks");
      }
    }
  }
}

// With a long context a slice has few rows, and enough blocks.
void tiles_of_long_contexts() {
  for (const int kv_heads : {32, 8, 4}) {
    const AttentionShape shape{32, kv_heads, 128, 128};
    constexpr int kLast = 32767;
    const int slice = cuda::attention_slice(512, kLast, shape);
    const cuda::AttentionTiles tiles = cuda::attention_tiles(slice, cuda::most_visible_chunks(kLast, 0), shape);
    check(slice >= 4 && slice <= 8, "rows of a slice");
    check(tiles.queries == cuda::kMostTileQueries, "a tile has room left");
  }
}

void slices() {
  for (const int heads : {1, 2, 7, 32, 80}) {
    const AttentionShape shape{heads, 1, 128, 128};
    for (const int n : {1, 2, 7, 16, 33, 64, 512}) {
      for (const int last : {0, 255, 256, 4095, 131071}) {
        const int slice = cuda::attention_slice(n, last, shape);
        const int64_t floats = cuda::attention_scratch_floats(cuda::most_visible_chunks(last, 0), shape.head_dim);
        const uint64_t bytes = static_cast<uint64_t>(floats * shape.heads * slice) * sizeof(float);
        check(slice >= 1 && slice <= n, "rows of a slice");
        check(slice == 1 || bytes <= cuda::kMostAttentionScratch, "a slice's scratch is bounded");
      }
    }
  }
}

}  // namespace

void add_device_code_cases(std::vector<Case>& cases) {
  cases.push_back({"device code: exp equals the one arithmetic", exponentials});
  cases.push_back({"device code: GLUs equal the CPU's", activations});
  cases.push_back({"device code: functions of one value equal the one arithmetic", functions});
  cases.push_back({"device code: rotations and weighted sums equal the CPU's", elements});
  cases.push_back({"device code: RMS norm equals the CPU's", norms});
  cases.push_back({"device code: chunks that a row sees", visible_chunks});
  cases.push_back({"device code: attention's tiles", tiles});
  cases.push_back({"device code: attention's tiles of long contexts", tiles_of_long_contexts});
  cases.push_back({"device code: attention's slices", slices});
}

}  // namespace odmoe::test
