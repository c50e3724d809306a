// MXFP4 and FP8 weights: products in their own formats, conversions to others, and bytes that do not depend on the writer.
#include <algorithm>
#include <cstring>

#include "native_tests.h"
#include "quantized_weights.h"
#include "reference_arithmetic.h"

namespace odmoe::test {
namespace {

constexpr Split kQuantizedSplits[] = {Split::mxfp4, Split::fp8};

WeightFormat own_format(Split split) { return split == Split::mxfp4 ? WeightFormat::mxfp4 : WeightFormat::fp8; }

std::string describe(const QuantizedWeights& weights) {
  return std::string(weights.split == Split::mxfp4 ? "mxfp4 " : "fp8 ") + std::to_string(weights.rows) + "x" +
         std::to_string(weights.columns);
}

// Writes in pieces of rows, the later ones first.
bool write(Backend& backend, Matrix& matrix, const QuantizedWeights& weights, int64_t piece) {
  for (int64_t first = (weights.rows - 1) / piece * piece; first >= 0; first -= piece) {
    const auto planes = weights.at(first);
    if (!backend.write_rows(matrix, first, std::min(piece, weights.rows - first), weights.split, planes.data())) return false;
  }
  return true;
}

std::vector<float> product(Backend& backend, const Matrix& matrix, const std::vector<float>& x, int n) {
  DeviceFloats in(backend, x);
  DeviceFloats out(backend, static_cast<size_t>(n * matrix.rows));
  backend.matmul(out.data(), matrix.rows, matrix, in.data(), matrix.columns, n);
  return out.read();
}

std::vector<float> reference_product(const QuantizedWeights& weights, const std::vector<float>& x, int n) {
  const std::vector<float> values = weights.values();
  const int64_t padded = (weights.columns + kLanes - 1) / kLanes * kLanes;
  std::vector<float> out;
  for (int i = 0; i < n; i++) {
    std::vector<float> in(x.begin() + i * weights.columns, x.begin() + (i + 1) * weights.columns);
    in.resize(static_cast<size_t>(padded));
    for (int64_t row = 0; row < weights.rows; row++) {
      std::vector<float> w(values.begin() + row * weights.columns, values.begin() + (row + 1) * weights.columns);
      w.resize(static_cast<size_t>(padded));
      out.push_back(reference_dot(in, w));
    }
  }
  return out;
}

void multiplies(const std::string& set, Split split, Scales scales) {
  auto backend = open_backend(set, 2);
  uint32_t seed = 1;
  for (const int64_t rows : {1, 3, 8, 33}) {
    for (const int64_t steps : {1, 4, 5, 33, 66}) {
      const int64_t columns = split == Split::mxfp4 ? steps * 32 : steps * 32 - seed % 32;
      const auto weights = random_quantized_weights(seed++, split, rows, columns, scales);
      DeviceMatrix matrix(*backend, own_format(split), rows, columns);
      check(write(*backend, matrix.matrix, weights, 5), "held");
      for (const int n : {1, 2, 3, 4, 6, 7, 13}) {
        const auto x = random_values(static_cast<size_t>(n * columns), seed);
        check_same(product(*backend, matrix.matrix, x, n), reference_product(weights, x, n),
                   describe(weights) + " n=" + std::to_string(n));
      }
    }
  }
}

// A matrix of many groups of tiles and tasks: every row of a batch has the same result as alone.
void ignores_batch(const std::string& set, Split split) {
  auto backend = open_backend(set, 2);
  const auto weights = random_quantized_weights(3, split, 203, 2880, Scales::usual);
  DeviceMatrix matrix(*backend, own_format(split), weights.rows, weights.columns);
  check(write(*backend, matrix.matrix, weights, 64), "held");
  const auto x = random_values(static_cast<size_t>(40 * weights.columns), 4);
  std::vector<float> alone;
  for (int i = 0; i < 40; i++) {
    const auto one = product(*backend, matrix.matrix, {x.begin() + i * weights.columns, x.begin() + (i + 1) * weights.columns}, 1);
    alone.insert(alone.end(), one.begin(), one.end());
  }
  for (const int n : {2, 3, 4, 5, 6, 7, 12, 40}) {
    const auto together = product(*backend, matrix.matrix, {x.begin(), x.begin() + n * weights.columns}, n);
    check_same(together.data(), alone.data(), together.size(), describe(weights) + " in a batch of " + std::to_string(n));
  }
}

// Every other format gets the same bytes as from the values in FP32.
void becomes_other_formats(const std::string& set, Split split) {
  auto backend = open_backend(set);
  auto weights = random_quantized_weights(5, split, 13, split == Split::mxfp4 ? 224 : 205, Scales::usual);
  // Few enough exponents for fixed4.
  if (split == Split::mxfp4) std::fill(weights.planes[1].begin() + 3, weights.planes[1].end(), uint8_t{120});
  const auto values = weights.values();
  for (const WeightFormat format :
       {WeightFormat::bf16, WeightFormat::fp16, WeightFormat::fp32, WeightFormat::int8, WeightFormat::nf4, WeightFormat::fixed4}) {
    if (format == WeightFormat::fixed4 && split == Split::fp8) continue;
    DeviceMatrix expected(*backend, format, weights.rows, weights.columns, Split::none_fp32, values.data());
    DeviceMatrix matrix(*backend, format, weights.rows, weights.columns);
    std::memcpy(matrix.matrix.storage.data, expected.matrix.storage.data, expected.matrix.storage.bytes);
    const auto planes = weights.at(0);
    check(backend->write_rows(matrix.matrix, 0, weights.rows, split, planes.data()), "held");
    check(std::memcmp(matrix.matrix.storage.data, expected.matrix.storage.data, expected.matrix.storage.bytes) == 0,
          describe(weights) + " as format " + std::to_string(static_cast<int>(format)));
  }
}

// Bytes do not depend on pieces, the instruction set, or old contents; values that are not shipped so are refused.
void stores_the_same_bytes(const std::string& set, Split split) {
  auto plain = open_backend("scalar");
  auto backend = open_backend(set);
  const auto weights = random_quantized_weights(6, split, 24, split == Split::mxfp4 ? 288 : 205, Scales::extreme);
  DeviceMatrix whole(*plain, own_format(split), weights.rows, weights.columns);
  DeviceMatrix pieces(*backend, own_format(split), weights.rows, weights.columns);
  std::memset(whole.matrix.storage.data, 0, whole.matrix.storage.bytes);
  std::memset(pieces.matrix.storage.data, 0, pieces.matrix.storage.bytes);
  check(write(*plain, whole.matrix, weights, 24) && write(*backend, pieces.matrix, weights, 1), "held");
  check(write(*backend, pieces.matrix, random_quantized_weights(7, split, 24, weights.columns, Scales::extreme), 5), "held");
  check(write(*backend, pieces.matrix, weights, 3), "held");
  check(std::memcmp(whole.matrix.storage.data, pieces.matrix.storage.data, whole.matrix.storage.bytes) == 0, describe(weights));
  const std::vector<float> values(static_cast<size_t>(weights.columns));
  const uint8_t* const planes[] = {reinterpret_cast<const uint8_t*>(values.data()),
                                   reinterpret_cast<const uint8_t*>(values.data())};
  for (const Split other : {Split::none_bf16, Split::none_fp32, Split::bf16_e8_sm8, Split::mxfp4, Split::fp8}) {
    if (other == split) continue;
    check(!backend->write_rows(pieces.matrix, 0, 1, other, planes), "values that were not shipped so are held");
  }
}

}  // namespace

void add_quantized_weight_cases(std::vector<Case>& cases) {
  for (const std::string& set : instruction_sets()) {
    for (const Split split : kQuantizedSplits) {
      const std::string name = "quantized weights " + set + (split == Split::mxfp4 ? " mxfp4: " : " fp8: ");
      cases.push_back({name + "multiplies", [=] { multiplies(set, split, Scales::usual); }});
      cases.push_back({name + "multiplies by extreme weights", [=] { multiplies(set, split, Scales::extreme); }});
      cases.push_back({name + "ignores batch", [=] { ignores_batch(set, split); }});
      cases.push_back({name + "becomes other formats", [=] { becomes_other_formats(set, split); }});
      cases.push_back({name + "stores the same bytes", [=] { stores_the_same_bytes(set, split); }});
    }
  }
}

}  // namespace odmoe::test
