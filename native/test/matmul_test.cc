// Matrix products of every format against the one arithmetic, and their independence of batch, threads and pieces.
#include <cmath>
#include <limits>

#include "native_tests.h"
#include "reference_arithmetic.h"

namespace odmoe::test {
namespace {

struct FormatName {
  WeightFormat format;
  const char* name;
};
constexpr FormatName kFormats[] = {{WeightFormat::bf16, "bf16"}, {WeightFormat::fp16, "fp16"}, {WeightFormat::fp32, "fp32"},
                                   {WeightFormat::int8, "int8"}, {WeightFormat::nf4, "nf4"},   {WeightFormat::fixed4, "fixed4"}};

struct Size {
  int64_t rows;
  int64_t columns;
};

// Weights that the format can hold: fixed4 rounds nothing.
std::vector<float> weights_for(WeightFormat format, std::vector<float> values) {
  if (format != WeightFormat::fixed4) return values;
  for (float& value : values) value = reference_of_bf16(reference_to_bf16(value));
  return values;
}

// The product of n rows of x with every row of the weights, one naive dot at a time.
std::vector<float> reference_product(WeightFormat format, const std::vector<float>& weights, Size size, const std::vector<float>& x,
                                     int n) {
  std::vector<float> out(static_cast<size_t>(n * size.rows));
  for (int64_t r = 0; r < size.rows; ++r) {
    const std::vector<float> row(weights.begin() + r * size.columns, weights.begin() + (r + 1) * size.columns);
    const StoredRow stored = reference_store(format, row);
    for (int i = 0; i < n; ++i) {
      std::vector<float> in(x.begin() + i * size.columns, x.begin() + (i + 1) * size.columns);
      in.resize(std::max(in.size(), stored.values.size()));
      const float dot = reference_dot(in, stored.values);
      out[static_cast<size_t>(i * size.rows + r)] = format == WeightFormat::int8 ? dot * stored.scale : dot;
    }
  }
  return out;
}

std::vector<float> product(Backend& backend, const Matrix& matrix, const std::vector<float>& x, int n) {
  DeviceFloats in(backend, x);
  DeviceFloats out(backend, static_cast<size_t>(n * matrix.rows));
  backend.matmul(out.data(), matrix.rows, matrix, in.data(), matrix.columns, n);
  return out.read();
}

void equals_reference(const std::string& set, const FormatName& format) {
  for (const int threads : {1, 3}) {
    auto backend = open_backend(set, threads);
    for (const Size size : {Size{1, 1}, Size{3, 31}, Size{4, 32}, Size{5, 33}, Size{9, 64}, Size{70, 97}, Size{33, 160},
                            Size{6, 2081}, Size{258, 224}, Size{39, 1137}}) {
      const auto weights = weights_for(format.format, random_values(static_cast<size_t>(size.rows * size.columns), 1, 0.05f));
      DeviceMatrix matrix(*backend, format.format, size.rows, size.columns, Split::none_fp32, weights.data());
      // A row's reference does not depend on the rows beside it.
      const int most = 17;
      const auto x = random_values(static_cast<size_t>(most * size.columns), 2);
      const auto expected = reference_product(format.format, weights, size, x, most);
      for (int n = 1; n <= most; ++n) {
        const std::vector<float> in(x.begin(), x.begin() + n * size.columns);
        check_same(product(*backend, matrix.matrix, in, n), {expected.begin(), expected.begin() + n * size.rows},
                   std::string(format.name) + " " + std::to_string(size.rows) + "x" + std::to_string(size.columns) +
                       " n=" + std::to_string(n));
      }
    }
  }
}

// Every row of any batch has the same result as alone, also when rows are read and written with strides.
void ignores_batch(const std::string& set, const FormatName& format) {
  const Size size{131, 2112};
  const int most = 50;
  const auto weights = weights_for(format.format, random_values(static_cast<size_t>(size.rows * size.columns), 3, 0.05f));
  const auto x = random_values(static_cast<size_t>(most * size.columns), 4);
  auto backend = open_backend(set, 2);
  DeviceMatrix matrix(*backend, format.format, size.rows, size.columns, Split::none_fp32, weights.data());
  std::vector<float> alone;
  for (int i = 0; i < most; ++i) {
    const auto one = product(*backend, matrix.matrix, {x.begin() + i * size.columns, x.begin() + (i + 1) * size.columns}, 1);
    alone.insert(alone.end(), one.begin(), one.end());
  }
  for (const int n : {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 20, 25, 50}) {
    const auto together = product(*backend, matrix.matrix, {x.begin(), x.begin() + n * size.columns}, n);
    check_same(together.data(), alone.data(), together.size(), "batch of " + std::to_string(n));
  }
  const int n = 5;
  const int64_t in_stride = size.columns * 2;
  const int64_t out_stride = size.rows + 7;
  DeviceFloats in(*backend, {x.begin(), x.begin() + n * in_stride});
  DeviceFloats out(*backend, std::vector<float>(static_cast<size_t>(n * out_stride), 123.0f));
  backend->matmul(out.data(), out_stride, matrix.matrix, in.data(), in_stride, n);
  const auto strided = out.read();
  for (int i = 0; i < n; ++i) {
    check_same(strided.data() + i * out_stride, alone.data() + 2 * i * size.rows, static_cast<size_t>(size.rows), "strided row");
    for (int64_t pad = size.rows; pad < out_stride; ++pad)
      check(strided[static_cast<size_t>(i * out_stride + pad)] == 123.0f, "wrote past a row");
  }
}

// Special values among the weights and inputs: exact in all three shipped types.
void keeps_specials(const std::string& set, const FormatName& format) {
  auto backend = open_backend(set);
  const float infinity = std::numeric_limits<float>::infinity();
  const float specials[] = {0.0f, -0.0f, infinity, -infinity, std::nanf(""), 1e-40f, -1e-45f, 3e38f, -3e38f, 1.0f, 6e-8f, 65504.0f};
  const Size size{12, 40};
  std::vector<float> weights(static_cast<size_t>(size.rows * size.columns), 1e-39f);
  for (int64_t r = 0; r < size.rows; ++r) weights[static_cast<size_t>(r * size.columns + r * 3)] = specials[r];
  weights = weights_for(format.format, weights);
  DeviceMatrix matrix(*backend, format.format, size.rows, size.columns, Split::none_fp32, weights.data());
  for (const float value : {1.0f, 1e-38f, -0.0f, 1e38f}) {
    const std::vector<float> x(static_cast<size_t>(2 * size.columns), value);
    check_same(product(*backend, matrix.matrix, x, 2), reference_product(format.format, weights, size, x, 2),
               "inputs of " + std::to_string(value));
  }
}

void close_to_double(const std::string& set, const FormatName& format) {
  auto backend = open_backend(set);
  const Size size{20, 4096};
  const auto weights = weights_for(format.format, random_values(static_cast<size_t>(size.rows * size.columns), 5, 0.02f));
  const auto x = random_values(static_cast<size_t>(size.columns), 6);
  DeviceMatrix matrix(*backend, format.format, size.rows, size.columns, Split::none_fp32, weights.data());
  const auto out = product(*backend, matrix.matrix, x, 1);
  // Half the step between neighbouring values of the format, relative to the value (or, quantized, to the greatest near it).
  const double step = format.format == WeightFormat::bf16     ? 0x1p-9
                      : format.format == WeightFormat::fp16   ? 0x1p-11
                      : format.format == WeightFormat::fp32   ? 0
                      : format.format == WeightFormat::fixed4 ? 0
                      : format.format == WeightFormat::int8   ? 0.5 / 127
                                                              : 0.152;
  const bool quantized = format.format == WeightFormat::int8 || format.format == WeightFormat::nf4;
  for (int64_t r = 0; r < size.rows; ++r) {
    double exact = 0;
    double magnitude = 0;
    double greatest = 0;
    double inputs = 0;
    for (int64_t k = 0; k < size.columns; ++k) {
      const double w = weights[static_cast<size_t>(r * size.columns + k)];
      const double term = w * x[static_cast<size_t>(k)];
      exact += term;
      magnitude += std::fabs(term);
      greatest = std::fmax(greatest, std::fabs(w));
      inputs += std::fabs(double{x[static_cast<size_t>(k)]});
    }
    // 128 additions per lane and five in the tree, each within half a unit of the sum of magnitudes.
    const double bound = magnitude * 140 * 0x1p-24 + step * (quantized ? greatest * inputs : magnitude);
    const double error = std::fabs(out[static_cast<size_t>(r)] - exact);
    check(error <= bound,
          "row " + std::to_string(r) + " is off by " + std::to_string(error) + ", more than " + std::to_string(bound));
  }
}

}  // namespace

void add_matmul_cases(std::vector<Case>& cases) {
  for (const std::string& set : instruction_sets()) {
    for (const FormatName& format : kFormats) {
      const std::string name = "matmul " + set + " " + format.name + ": ";
      cases.push_back({name + "equals the one arithmetic", [=] { equals_reference(set, format); }});
      cases.push_back({name + "ignores the batch", [=] { ignores_batch(set, format); }});
      cases.push_back({name + "keeps specials", [=] { keeps_specials(set, format); }});
      cases.push_back({name + "close to double precision", [=] { close_to_double(set, format); }});
    }
  }
}

}  // namespace odmoe::test
