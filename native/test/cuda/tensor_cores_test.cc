// Products by tensor cores (`arithmetic: fast`) are as near to the exact ones as x in BF16 and sums in FP32 allow.
#include <cmath>
#include <cstdio>

#include "odmoe/cuda.h"
#include "shipped_weights.h"

namespace odmoe::cuda_test {
namespace {

struct Exact {
  double value;
  double error;  // at most
};

// x in BF16 has a relative error of at most 2^-8; every addition has an error of at most 2^-24 of the sum of magnitudes.
Exact exact_dot(const float* weights, const float* x, int64_t columns) {
  double sum = 0;
  double magnitudes = 0;
  for (int64_t i = 0; i < columns; ++i) {
    const double product = double{weights[i]} * double{x[i]};
    sum += product;
    magnitudes += std::fabs(product);
  }
  return {sum, magnitudes * (0x1p-8 + static_cast<double>(columns) * 0x1p-23) + 0x1p-120};
}

double silu(double x) { return x / (1 + std::exp(-x)); }

// silu's slope is 1.1 at most.
Exact exact_swiglu(const Exact& gate, const Exact& up) {
  const double value = silu(gate.value);
  const double gate_error = 1.1 * gate.error + std::fabs(value) * 0x1p-20;
  return {value * up.value, gate_error * (std::fabs(up.value) + up.error) + std::fabs(value) * up.error + 0x1p-120};
}

std::vector<float> moderate_floats(std::mt19937& random, int64_t count) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

void near_exact(Devices& devices, const std::shared_ptr<Backend>& fast, int64_t rows, int64_t columns, int n, bool gated) {
  const auto shipped = random_weights(devices.random, Split::bf16_e8_sm8, rows, columns, Weights::finite);
  const std::string what = describe(WeightFormat::bf16, shipped) + ", n " + std::to_string(n) + (gated ? ", gated" : "");
  StoredMatrix on_fast(fast, WeightFormat::bf16, rows, columns);
  expect(on_fast.write(shipped, 0, rows), what + ": not written");
  const StoredPair pair = store(devices, WeightFormat::bf16, shipped);
  std::vector<int32_t> ids(static_cast<size_t>(rows));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const Floats embedded(devices.reference, rows * columns);
  devices.reference->embed(embedded.data(), pair.reference->matrix, ids.data(), static_cast<int>(rows));
  const std::vector<float> weights = embedded.values();
  const std::vector<float> x = moderate_floats(devices.random, n * columns);
  const int64_t outputs = gated ? rows / 2 : rows;
  const auto product = [&](const std::shared_ptr<Backend>& backend, const StoredMatrix& stored) {
    const Floats in(backend, x);
    const Floats out(backend, n * outputs);
    const Product one{out.data(), outputs, &stored.matrix, in.data(), columns, n};
    if (gated) {
      backend->multiply_glu(&one, 1, nullptr, {}, nullptr);
    } else {
      backend->multiply(&one, 1);
    }
    return out.values();
  };
  const std::vector<float> got = product(fast, on_fast);
  for (int i = 0; i < n; ++i) {
    for (int64_t r = 0; r < outputs; ++r) {
      const float* const in = x.data() + i * columns;
      Exact expected = exact_dot(weights.data() + r * columns, in, columns);
      if (gated) expected = exact_swiglu(expected, exact_dot(weights.data() + (outputs + r) * columns, in, columns));
      const double value = got[static_cast<size_t>(i * outputs + r)];
      if (std::fabs(value - expected.value) <= expected.error) continue;
      char text[120];
      std::snprintf(text, sizeof text, ": token %d, output %lld is %.9g, not within %.3g of %.9g", i, static_cast<long long>(r),
                    value, expected.error, expected.value);
      throw Failure(what + text);
    }
  }
  expect(got != product(devices.cuda, *pair.cuda), what + ": the same as without tensor cores");
}

}  // namespace

void test_tensor_cores(Devices& devices) {
  const std::shared_ptr<Backend> fast = make_cuda_backend({.device = devices.device, .budget_bytes = 0, .fast = true});
  for (const bool gated : {false, true}) {
    for (const int n : {8, 9, 16, 31, 32, 33, 40}) {
      near_exact(devices, fast, 32 * random_between(devices.random, 1, 5), random_between(devices.random, 1, 700), n, gated);
    }
  }
}

}  // namespace odmoe::cuda_test
