// MXFP4 and FP8 weights, in their own formats and in others, equal the CPU's to the bit.
#include "../quantized_weights.h"
#include "shipped_weights.h"

namespace odmoe::cuda_test {
namespace {

constexpr Split kQuantizedSplits[] = {Split::mxfp4, Split::fp8};

WeightFormat own_format(Split split) { return split == Split::mxfp4 ? WeightFormat::mxfp4 : WeightFormat::fp8; }

ShippedWeights quantized(Devices& devices, Split split, int64_t rows, int64_t columns, test::Scales scales) {
  const auto weights = test::random_quantized_weights(static_cast<uint32_t>(devices.random()), split, rows, columns, scales);
  return {split, rows, columns, {weights.planes[0], weights.planes[1], {}}};
}

int64_t random_columns(Devices& devices, Split split, int most) {
  return split == Split::mxfp4 ? 32 * random_between(devices.random, 1, most / 32) : random_between(devices.random, 1, most);
}

std::vector<float> product(const std::shared_ptr<Backend>& backend, const StoredMatrix& stored, const std::vector<float>& x,
                           int n) {
  const Floats in(backend, x);
  const Floats out(backend, n * stored.matrix.rows);
  backend->matmul(out.data(), stored.matrix.rows, stored.matrix, in.data(), stored.matrix.columns, n);
  return out.values();
}

void equal_products(Devices& devices, WeightFormat format, const ShippedWeights& weights, int n) {
  const StoredPair pair = store(devices, format, weights);
  if (pair.cuda == nullptr) return;
  const std::vector<float> x = random_floats(devices.random, n * weights.columns);
  expect_equal(describe(format, weights) + ", n " + std::to_string(n), product(devices.cuda, *pair.cuda, x, n),
               product(devices.reference, *pair.reference, x, n));
}

void every_batch(Devices& devices) {
  for (const Split split : kQuantizedSplits) {
    for (const int n : {1, 2, 3, 4, 5, 8, 9, 17, 40}) {
      for (const test::Scales scales : {test::Scales::usual, test::Scales::extreme}) {
        const auto weights = quantized(devices, split, random_between(devices.random, 1, 70),
                                       random_columns(devices, split, n > 9 ? 500 : 1500), scales);
        equal_products(devices, own_format(split), weights, n);
      }
    }
    const int64_t rows = devices.cuda->info().threads * 128 + 6;
    equal_products(devices, own_format(split), quantized(devices, split, rows, 320, test::Scales::usual), 1);
    for (const int64_t columns : {1440, 2048, 2880, 7168}) {
      equal_products(devices, own_format(split), quantized(devices, split, 6, columns, test::Scales::usual), 1);
    }
  }
}

// Every number of steps up to two main pieces; for fp8 with a full and with an incomplete last step.
void every_number_of_steps(Devices& devices) {
  for (int steps = 1; steps <= 70; ++steps) {
    equal_products(devices, WeightFormat::mxfp4, quantized(devices, Split::mxfp4, 3, steps * 32, test::Scales::usual), 1);
    if (steps > 40) continue;
    const int64_t columns = steps * 32 - (steps % 2 == 0 ? 0 : random_between(devices.random, 1, 31));
    equal_products(devices, WeightFormat::fp8, quantized(devices, Split::fp8, 3, columns, test::Scales::usual), 1);
  }
}

void every_other_format(Devices& devices) {
  for (const Split split : kQuantizedSplits) {
    for (const WeightFormat format : kFormats) {
      auto weights = quantized(devices, split, random_between(devices.random, 1, 12), random_columns(devices, split, 300),
                               test::Scales::usual);
      // A single scale, so that fixed4 has codes for all exponents.
      if (split == Split::mxfp4 && format == WeightFormat::fixed4) weights.planes[1].assign(weights.planes[1].size(), 120);
      equal_products(devices, format, weights, 3);
    }
  }
}

void holds_what_is_shipped_so(Devices& devices) {
  for (const Split split : kQuantizedSplits) {
    const auto weights = random_weights(devices.random, Split::none_bf16, 4, 64, Weights::finite);
    StoredMatrix matrix(devices.cuda, own_format(split), 4, 64);
    expect(!matrix.write(weights, 0, 4), "BF16 weights were written as quantized ones");
  }
}

}  // namespace

void test_quantized(Devices& devices) {
  every_batch(devices);
  every_number_of_steps(devices);
  every_other_format(devices);
  holds_what_is_shipped_so(devices);
}

}  // namespace odmoe::cuda_test
