// Rows from all kinds of planes are written into all formats; the values read back equal the CPU's.
#include <algorithm>

#include "shipped_weights.h"

namespace odmoe::cuda_test {
namespace {

// All values, from products with the unit vectors. A weight that is infinite or NaN makes its whole row NaN.
std::vector<float> values_by_products(const std::shared_ptr<Backend>& backend, const StoredMatrix& stored) {
  const int64_t columns = stored.matrix.columns;
  std::vector<float> units(static_cast<size_t>(columns * columns));
  for (int64_t i = 0; i < columns; ++i) units[static_cast<size_t>(i * columns + i)] = 1.0f;
  const Floats in(backend, units);
  const Floats out(backend, columns * stored.matrix.rows);
  backend->matmul(out.data(), stored.matrix.rows, stored.matrix, in.data(), columns, static_cast<int>(columns));
  return out.values();
}

std::vector<float> values_by_embedding(const std::shared_ptr<Backend>& backend, const StoredMatrix& stored,
                                       const std::vector<int32_t>& ids) {
  const auto n = static_cast<int64_t>(ids.size());
  const Floats out(backend, n * stored.matrix.columns);
  backend->embed(out.data(), stored.matrix, ids.data(), static_cast<int>(n));
  return out.values();
}

void reads_back_what_was_written(Devices& devices, WeightFormat format, const ShippedWeights& weights) {
  const StoredPair pair = store(devices, format, weights);
  if (pair.cuda == nullptr) return;
  const std::string what = describe(format, weights);
  if (format == WeightFormat::int8 || format == WeightFormat::nf4) {
    return expect_equal(what, values_by_products(devices.cuda, *pair.cuda), values_by_products(devices.reference, *pair.reference));
  }
  std::vector<int32_t> ids;
  for (int64_t row = 0; row < weights.rows; ++row) ids.push_back(static_cast<int32_t>(row));
  std::shuffle(ids.begin(), ids.end(), devices.random);
  ids.push_back(ids.front());
  expect_equal(what, values_by_embedding(devices.cuda, *pair.cuda, ids),
               values_by_embedding(devices.reference, *pair.reference, ids));
}

bool is_fp16(Split split) { return split == Split::none_fp16 || split == Split::fp16_hi8_lo8 || split == Split::fp16_e5_lo8_s1m2; }

void every_split_and_format(Devices& devices) {
  for (const Split split : kSplits) {
    for (const WeightFormat format : kFormats) {
      const bool quantized = format == WeightFormat::int8 || format == WeightFormat::nf4;
      for (const Weights kind : {Weights::finite, Weights::with_infinities_and_nan, Weights::bf16_alone}) {
        if (kind == Weights::bf16_alone && is_fp16(split)) continue;
        const int columns = random_between(devices.random, 1, quantized ? 150 : 1500);
        const int rows = random_between(devices.random, 1, 12);
        reads_back_what_was_written(devices, format, random_weights(devices.random, split, rows, columns, kind));
      }
    }
  }
}

// Every number of steps up to two main pieces of any format, each with a full and with an incomplete last step.
void every_number_of_steps(Devices& devices) {
  for (int steps = 1; steps <= 40; ++steps) {
    for (const int missing : {0, random_between(devices.random, 1, 31)}) {
      const auto weights = random_weights(devices.random, Split::bf16_e8_sm8, 5, steps * 32 - missing, Weights::finite);
      reads_back_what_was_written(devices, WeightFormat::bf16, weights);
      reads_back_what_was_written(devices, WeightFormat::fixed4, weights);
      reads_back_what_was_written(devices, WeightFormat::fp32, weights);
    }
  }
}

// Tiles with 16 exponents in turn and `escapes` other ones, spread out or all at the end: up to the tile's limit, and past it.
ShippedWeights with_escapes(std::mt19937& random, int64_t rows, int64_t columns, int64_t escapes, bool spread) {
  ShippedWeights weights{Split::bf16_e8_sm8, rows, columns, {}};
  const int64_t tile = 4 * columns;
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t within = i % tile;
    const int64_t size = std::min(tile, rows * columns - (i - within));
    const bool escape = spread ? within * escapes / size != (within + 1) * escapes / size : size - within <= escapes;
    weights.planes[0].push_back(static_cast<uint8_t>(escape ? random_between(random, 1, 90) : 110 + i % 16));
    weights.planes[1].push_back(static_cast<uint8_t>(random()));
  }
  return weights;
}

void fixed4_holds_as_many_escapes(Devices& devices) {
  for (const int64_t columns : {40, 205, 768, 1500}) {
    // Room for one escape in 256 weights, rounded up to a cache line.
    const int64_t room = ((36 + columns * 4 / 256 * 4 + 63) / 64 * 64 - 36) / 4;
    for (const int64_t escapes : {room / 2, room - 1, room, room + 1}) {
      for (const bool spread : {false, true}) {
        const auto weights = with_escapes(devices.random, 10, columns, escapes, spread);
        expect((store(devices, WeightFormat::fixed4, weights).cuda != nullptr) == (escapes <= room),
               describe(WeightFormat::fixed4, weights) + ": escapes counted otherwise");
        reads_back_what_was_written(devices, WeightFormat::fixed4, weights);
      }
    }
  }
}

void fixed4_refuses_what_is_no_bf16(Devices& devices) {
  const auto weights = random_weights(devices.random, Split::none_fp32, 6, 100, Weights::finite);
  StoredMatrix matrix(devices.cuda, WeightFormat::fixed4, 6, 100);
  expect(!matrix.write(weights, 0, 6), "FP32 weights were written as fixed4");
}

}  // namespace

void test_write_rows(Devices& devices) {
  every_split_and_format(devices);
  every_number_of_steps(devices);
  fixed4_holds_as_many_escapes(devices);
  fixed4_refuses_what_is_no_bf16(devices);
}

}  // namespace odmoe::cuda_test
