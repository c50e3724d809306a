// RMS norms, L2 norms and layer norms against the reference: for hidden states and for distant heads.
#include "compared.h"

namespace odmoe::cuda_test {
namespace {

struct Case {
  int rows;
  int vectors;
  int size;
  Gaps gaps;
  int64_t offset;
};

std::string describe(const char* what, const Case& of) {
  return named(what, of.rows, int64_t{of.vectors} * of.size, of.offset) + ", vectors " + std::to_string(of.vectors) + ", gaps " +
         std::to_string(of.gaps.row) + " and " + std::to_string(of.gaps.vector);
}

// Values with some infinities and NaN, and a first vector with only denormals.
std::vector<float> values_of(Devices& devices, int64_t count, int size, bool strange) {
  std::vector<float> in = strange ? strange_floats(devices.random, count) : random_floats(devices.random, count);
  for (int i = 0; strange && i < size; ++i) in[static_cast<size_t>(i)] = static_cast<float>(i % 3 - 1) * 0x1p-149f;
  return in;
}

void normalizes(Devices& devices, const Case& of) {
  const int64_t count = SpacedVectors::floats(of.rows, of.vectors, of.size, of.gaps);
  const Gaps none;
  const int64_t dense = SpacedVectors::floats(of.rows, of.vectors, of.size, none);
  for (int kind = 0; kind < 4; ++kind) {
    const std::vector<float> in = values_of(devices, count, of.size, kind % 2 == 1);
    // The last kind has weights of its own for each vector of a row.
    const std::vector<float> weight = random_floats(devices.random, int64_t{of.size} * (kind == 3 ? of.vectors : 1));
    NormWork work;
    work.weight_stride = kind == 3 ? of.size : 0;
    work.divisor = kind < 2 ? static_cast<float>(of.size) : 1.0f;
    work.epsilon = kind == 0 ? 1e-5f : kind == 1 ? 0.0f : 1e-6f;
    work.scale = kind == 2 ? 0.0883883461f : 1.0f;
    const auto weight_of = [&](const FencedFloats& by) { return kind < 2 || kind == 3 ? by.data() : nullptr; };
    compare(devices, describe("norm", of), [&](const std::shared_ptr<Backend>& backend) {
      const SpacedVectors from(backend, in, of.rows, of.vectors, of.size, of.gaps, of.offset);
      const FencedFloats by(backend, weight, of.offset);
      const SpacedVectors to(backend, poison(dense), of.rows, of.vectors, of.size, none, of.offset);
      NormWork own = work;
      own.out = to.get();
      own.in = from.get();
      own.weight = weight_of(by);
      backend->normalize(own);
      return to.values();
    });
    compare(devices, describe("norm in place", of), [&](const std::shared_ptr<Backend>& backend) {
      const FencedFloats by(backend, weight, 0);
      const SpacedVectors both(backend, in, of.rows, of.vectors, of.size, of.gaps, of.offset);
      NormWork own = work;
      own.out = own.in = both.get();
      own.weight = weight_of(by);
      backend->normalize(own);
      return both.values();
    });
  }
}

void layer_normalizes(Devices& devices, int n, int size, int64_t offset, bool has_bias) {
  const int64_t count = int64_t{n} * size;
  const char* const what = has_bias ? "layer norm" : "layer norm without bias";
  for (const bool strange : {false, true}) {
    const std::vector<float> in = values_of(devices, count, size, strange);
    const std::vector<float> weight = random_floats(devices.random, size);
    const std::vector<float> bias = random_floats(devices.random, size);
    for (const bool in_place : {false, true}) {
      compare(devices, named(what, n, size, offset), [&](const std::shared_ptr<Backend>& backend) {
        const FencedFloats from(backend, in, offset);
        const FencedFloats by(backend, weight, offset);
        const FencedFloats more(backend, bias, 0);
        const FencedFloats to(backend, poison(count), offset);
        const FencedFloats& out = in_place ? from : to;
        backend->layer_norm(out.data(), from.data(), by.data(), has_bias ? more.data() : nullptr, n, size, 1e-5f);
        return out.values();
      });
    }
  }
}

}  // namespace

void test_normalize(Devices& devices) {
  for (const int64_t offset : {0, 1, 4}) {
    for (const int size : {1, 3, 4, 31, 32, 33, 64, 100, 512, 516, 2048, 8192, 8196, 20004}) {
      const int rows = size < 8192 ? 3 : 1;
      normalizes(devices, {rows, 1, size, {}, offset});
      for (const bool has_bias : {true, false}) layer_normalizes(devices, rows, size, offset, has_bias);
    }
    for (const int size : {8, 20, 64, 128, 192, 256, 600}) {
      normalizes(devices, {2, 6, size, {4, 0}, offset});
      normalizes(devices, {3, 5, size, {7, 12}, offset});
      normalizes(devices, {1, 3, size, {0, 5}, offset});
    }
  }
}

}  // namespace odmoe::cuda_test
