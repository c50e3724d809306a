// Products with their GLU in the same tasks give the same bits as products first and the GLU after them.
#include <array>
#include <utility>

#include "native_tests.h"

namespace odmoe::test {
namespace {

struct GluCase {
  WeightFormat format;
  int64_t intermediate;
  int64_t columns;
};

// 6 gate rows are not whole tiles, so the GLU comes after the products. The others are a tile, half a task, and several tasks.
constexpr GluCase kCases[] = {{WeightFormat::bf16, 4, 40},    {WeightFormat::bf16, 6, 40},    {WeightFormat::bf16, 84, 2112},
                              {WeightFormat::fp32, 132, 512}, {WeightFormat::fp16, 20, 33},   {WeightFormat::int8, 68, 2048},
                              {WeightFormat::nf4, 64, 256},   {WeightFormat::fixed4, 96, 640}};

void glu_in_tasks(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  for (const GluCase& one : kCases) {
    const int64_t gate_up_rows = 2 * one.intermediate;
    std::vector<float> weights = random_values(static_cast<size_t>(2 * gate_up_rows * one.columns), 1, 0.1f);
    // Values that every format can hold: fixed4 rounds nothing.
    for (float& weight : weights) weight = static_cast<float>(static_cast<int>(weight * 64)) / 64;
    DeviceMatrix first(*backend, one.format, gate_up_rows, one.columns, Split::none_fp32, weights.data());
    DeviceMatrix second(*backend, one.format, gate_up_rows, one.columns, Split::none_fp32,
                        weights.data() + gate_up_rows * one.columns);
    const auto biases = random_values(static_cast<size_t>(2 * gate_up_rows), 2);
    DeviceFloats device_biases(*backend, biases);
    const float* const each[] = {device_biases.data(), device_biases.data() + gate_up_rows};
    for (const auto& [n, m] : {std::pair{1, 1}, std::pair{3, 0}, std::pair{5, 19}}) {
      DeviceFloats in(*backend, random_values(static_cast<size_t>((n + m) * one.columns), 3));
      DeviceFloats gate_up(*backend, static_cast<size_t>((n + m) * gate_up_rows));
      for (const bool biased : {false, true}) {
        DeviceFloats fused(*backend, static_cast<size_t>((n + m) * one.intermediate));
        DeviceFloats apart(*backend, static_cast<size_t>((n + m) * one.intermediate));
        const auto products = [&](const DeviceFloats& out) {
          return std::array<Product, 2>{Product{out.data(), one.intermediate, &first.matrix, in.data(), one.columns, n},
                                        Product{out.data() + n * one.intermediate, one.intermediate, &second.matrix,
                                                in.data() + n * one.columns, one.columns, m}};
        };
        const int count = m == 0 ? 1 : 2;
        backend->multiply_glu(products(fused).data(), count, gate_up.data(), {}, biased ? each : nullptr);
        backend->Backend::multiply_glu(products(apart).data(), count, gate_up.data(), {}, biased ? each : nullptr);
        check_same(fused.read(), apart.read(),
                   "glu of " + std::to_string(one.intermediate) + " x " + std::to_string(one.columns) + ", " + std::to_string(n) +
                       " and " + std::to_string(m) + " rows");
      }
      // Without a gate the outputs are the products' own rows.
      std::vector<Product> products;
      DeviceFloats out(*backend, static_cast<size_t>((n + m) * gate_up_rows));
      products.push_back({out.data(), gate_up_rows, &first.matrix, in.data(), one.columns, n});
      if (m > 0) {
        products.push_back(
            {out.data() + n * gate_up_rows, gate_up_rows, &second.matrix, in.data() + n * one.columns, one.columns, m});
      }
      backend->multiply(products.data(), static_cast<int>(products.size()));
      std::vector<float> expected = out.read();
      for (float& value : expected) value = value < 0.0f ? 0.0f : value * value;
      backend->multiply_glu(products.data(), static_cast<int>(products.size()), gate_up.data(), {0, Activation::relu_squared},
                            nullptr);
      check_same(out.read(), expected, "squares of " + std::to_string(gate_up_rows) + " x " + std::to_string(one.columns));
    }
  }
}

}  // namespace

void add_products_glu_cases(std::vector<Case>& cases) {
  for (const std::string& set : instruction_sets()) {
    for (const int threads : {1, 3}) {
      cases.push_back({"products with a GLU " + set + ": as one after the other, " + std::to_string(threads) + " threads",
                       [=] { glu_in_tasks(set, threads); }});
    }
  }
}

}  // namespace odmoe::test
