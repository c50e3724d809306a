// Norms of hidden states and heads, and rotations of heads, against the one arithmetic.
#include <cmath>

#include "native_tests.h"
#include "reference_operators.h"

namespace odmoe::test {
namespace {

std::vector<float> part(const std::vector<float>& values, int64_t begin, int64_t count) {
  return {values.begin() + begin, values.begin() + begin + count};
}

struct Heads {
  int rows;
  int heads;
  int size;
};

// Heads of rows within a wider row; out of place, in place, and with all options of a norm.
void normalizes(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  for (const Heads shape : {Heads{3, 1, 1}, Heads{3, 1, 33}, Heads{2, 1, 4096}, Heads{1, 1, 20000}, Heads{5, 4, 128},
                            Heads{3, 5, 7}, Heads{70, 3, 64}, Heads{2, 2, 576}}) {
    const int64_t gap = 5;
    const int64_t stride = int64_t{shape.heads} * (shape.size + gap);
    const auto x = random_values(static_cast<size_t>(shape.rows * stride), 1);
    const auto weight = random_values(static_cast<size_t>(shape.heads * shape.size), 2);
    DeviceFloats device_weight(*backend, weight);
    for (const bool weighed : {true, false}) {
      for (const float scale : {1.0f, 0.08838835f}) {
        const float divisor = scale == 1.0f ? static_cast<float>(shape.size) : 1.0f;
        // Heads have one weight, or each its own.
        const int64_t apart = scale == 1.0f ? 0 : shape.size;
        const auto expected_of = [&](int row, int head) {
          return reference_norm(part(x, row * stride + head * (shape.size + gap), shape.size),
                                weighed ? weight.data() + head * apart : nullptr, divisor, 1e-5f, scale);
        };
        DeviceFloats in(*backend, x);
        DeviceFloats out(*backend, static_cast<size_t>(shape.rows * shape.heads * shape.size));
        const Vectors from{in.data(), stride, shape.size + gap, shape.rows, shape.heads, shape.size};
        const Vectors to{out.data(), int64_t{shape.heads} * shape.size, shape.size, shape.rows, shape.heads, shape.size};
        const float* const by = weighed ? device_weight.data() : nullptr;
        backend->normalize({to, from, by, divisor, 1e-5f, scale, apart});
        std::vector<float> packed;
        std::vector<float> in_place = x;
        for (int row = 0; row < shape.rows; ++row) {
          for (int head = 0; head < shape.heads; ++head) {
            const auto expected = expected_of(row, head);
            packed.insert(packed.end(), expected.begin(), expected.end());
            std::copy(expected.begin(), expected.end(), in_place.begin() + row * stride + head * (shape.size + gap));
          }
        }
        const std::string what = std::to_string(shape.heads) + " heads of " + std::to_string(shape.size);
        check_same(out.read(), packed, "norm of " + what);
        backend->normalize({from, from, by, divisor, 1e-5f, scale, apart});
        check_same(in.read(), in_place, "norm in place of " + what);
      }
    }
  }
}

void layer_norms(const std::string& set, int threads, bool has_bias) {
  auto backend = open_backend(set, threads);
  for (const int size : {1, 7, 16, 31, 32, 33, 100, 4096, 20000}) {
    const int n = 3;
    const auto x = random_values(static_cast<size_t>(n * size), 3, 2.0f);
    const auto weight = random_values(static_cast<size_t>(size), 4);
    const auto bias = random_values(static_cast<size_t>(size), 5);
    DeviceFloats in(*backend, x);
    DeviceFloats device_weight(*backend, weight);
    DeviceFloats device_bias(*backend, bias);
    DeviceFloats out(*backend, x.size());
    std::vector<float> expected;
    for (int i = 0; i < n; ++i) {
      const auto row = reference_layer_norm(part(x, i * size, size), weight, has_bias ? bias.data() : nullptr, 1e-5f);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    const float* const biases = has_bias ? device_bias.data() : nullptr;
    backend->layer_norm(out.data(), in.data(), device_weight.data(), biases, n, size, 1e-5f);
    check_same(out.read(), expected, "layer norm of " + std::to_string(size));
    backend->layer_norm(in.data(), in.data(), device_weight.data(), biases, n, size, 1e-5f);
    check_same(in.read(), expected, "layer norm in place of " + std::to_string(size));
  }
}

// Rotates a part of each head, from some dimension on; the other dimensions stay.
void rotates(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  for (const RotaryPairing pairing : {RotaryPairing::halves, RotaryPairing::neighbours}) {
    for (const int pairs : {1, 3, 8, 16, 32, 37, 64}) {
      for (const int offset : {0, 6}) {
        const int n = 4;
        const int heads = 3;
        const int head_dim = 2 * pairs + offset + 3;
        const int64_t stride = heads * head_dim + 5;
        const auto x = random_values(static_cast<size_t>(n * stride), 6);
        const auto cos = random_values(static_cast<size_t>(n * pairs), 7);
        const auto sin = random_values(static_cast<size_t>(n * pairs), 8);
        DeviceFloats device_x(*backend, x);
        DeviceFloats device_cos(*backend, cos);
        DeviceFloats device_sin(*backend, sin);
        backend->rotate(
            {{device_x.data() + offset, stride, head_dim, n, heads, 2 * pairs}, device_cos.data(), device_sin.data(), pairing});
        std::vector<float> expected = x;
        for (int i = 0; i < n; ++i) {
          for (int head = 0; head < heads; ++head) {
            reference_rotate(expected.data() + i * stride + head * head_dim + offset, cos.data() + i * pairs,
                             sin.data() + i * pairs, pairs, pairing);
          }
        }
        check_same(device_x.read(), expected, "rotation of " + std::to_string(pairs) + " pairs");
      }
    }
  }
}

}  // namespace

void add_norm_cases(std::vector<Case>& cases) {
  for (const std::string& set : instruction_sets()) {
    for (const int threads : {1, 3}) {
      const std::string equals = ": equals the one arithmetic, " + std::to_string(threads) + " threads";
      cases.push_back({"norm " + set + equals, [=] { normalizes(set, threads); }});
      cases.push_back({"layer norm " + set + equals, [=] { layer_norms(set, threads, true); }});
      cases.push_back({"layer norm without bias " + set + equals, [=] { layer_norms(set, threads, false); }});
      cases.push_back({"rotation " + set + equals, [=] { rotates(set, threads); }});
    }
  }
}

}  // namespace odmoe::test
