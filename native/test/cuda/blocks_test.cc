// Block formats: products, look-ups and conversions equal, to the bit, those of the values that the store reads (block_values.h).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "../reference_arithmetic.h"
#include "odmoe/block_values.h"
#include "shipped_weights.h"

namespace odmoe::cuda_test {
namespace {

constexpr Split kBlockSplits[] = {Split::fp8_row,       Split::fp8_tile, Split::mxfp8, Split::nvfp4_multiplied,
                                  Split::nvfp4_divided, Split::q4_0,     Split::q4_1,  Split::q5_0,
                                  Split::q5_1,          Split::q8_0,     Split::q2_k,  Split::q3_k,
                                  Split::q4_k,          Split::q5_k,     Split::q6_k,  Split::iq4_nl,
                                  Split::iq4_xs};

std::string name_of(Split split) {
  return "block format " + std::to_string(static_cast<uint64_t>(kind_of(split))) +
         (is_grouped(split) ? " (" + std::to_string(static_cast<uint64_t>(split) >> 8) + ")" : "");
}

Split grouped_split(const GroupedCodes& codes) { return static_cast<Split>(grouped_bits(codes)); }

// Codes with and without zero points, with every type of scale, in groups and for whole rows.
std::vector<Split> grouped_splits(std::mt19937& random) {
  std::vector<Split> splits;
  for (const int bits : {4, 8}) {
    for (const ScaleType scales : {ScaleType::bf16, ScaleType::fp16, ScaleType::fp32}) {
      for (const bool zeros : {false, true}) {
        constexpr int kGroups[] = {0, 32, 64, 128};
        splits.push_back(grouped_split({bits, scales, zeros, kGroups[random_between(random, 0, 3)], 0}));
      }
    }
  }
  return splits;
}

// The pieces of a random order of columns, of `order_bytes` for each row.
std::vector<uint8_t> random_order(std::mt19937& random, int64_t rows, int64_t columns, int order_bytes) {
  std::vector<uint16_t> order(static_cast<size_t>(columns));
  std::iota(order.begin(), order.end(), uint16_t{0});
  std::shuffle(order.begin(), order.end(), random);
  std::vector<uint8_t> bytes(static_cast<size_t>(rows * order_bytes));
  for (size_t i = 0; i < order.size(); ++i) {
    bytes[2 * i] = static_cast<uint8_t>(order[i]);
    bytes[2 * i + 1] = static_cast<uint8_t>(order[i] >> 8);
  }
  return bytes;
}

float random_scale(std::mt19937& random, int least, int most) {
  return std::ldexp(1.0f + static_cast<float>(random() % (1u << 23)) * 0x1p-23f, random_between(random, least, most));
}

void put_float(std::vector<uint8_t>& bytes, size_t at, float value) { std::memcpy(bytes.data() + at, &value, sizeof value); }

// Whether byte `place` of a block has the exponent's highest bits of an FP16 number.
bool is_high_byte(Split split, int place) {
  switch (kind_of(split)) {
    case Split::q4_1:
    case Split::q5_1:
    case Split::q4_k:
    case Split::q5_k: return place == 1 || place == 3;
    case Split::q2_k: return place == 81 || place == 83;
    case Split::q3_k: return place == 109;
    case Split::q6_k: return place == 209;
    default: return place == 1;
  }
}

void make_finite(std::vector<uint8_t>& bytes, int64_t first, int64_t end, int apart) {
  for (int64_t i = first; i < end; i += apart) bytes[static_cast<size_t>(i)] &= 0xbf;
}

// Codes and scales of two planes, from random bytes.
void make_valid_planes(std::mt19937& random, Split split, int64_t columns, std::vector<uint8_t>& codes,
                       std::vector<uint8_t>& scales) {
  if (is_grouped(split)) {
    const int width = grouped_codes(split).scales == ScaleType::fp32 ? 4 : 2;
    return make_finite(scales, width - 1, grouped_codes(split).scale_bytes(columns), width);
  }
  const Split kind = kind_of(split);
  if (kind == Split::nvfp4_multiplied || kind == Split::nvfp4_divided) {
    for (uint8_t& byte : scales) byte = static_cast<uint8_t>(byte % 0x7f);
    const bool divided = kind == Split::nvfp4_divided;
    return put_float(scales, scales.size() - 4, random_scale(random, divided ? -3 : -20, divided ? 20 : 3));
  }
  for (uint8_t& byte : codes) byte = (byte & 0x7f) == 0x7f ? 0x3a : byte;
  if (kind == Split::mxfp8) {
    for (uint8_t& byte : scales) byte = static_cast<uint8_t>(byte % 8 == 0 ? byte % 246 : 110 + byte % 20);
    return;
  }
  for (size_t i = 0; i < scales.size(); i += 4) put_float(scales, i, random_scale(random, -20, 3));
}

// Random bytes whose weights are numbers.
ShippedWeights random_blocks(std::mt19937& random, Split split, int64_t rows, int64_t columns) {
  ShippedWeights weights{split, rows, columns, {}};
  const int order_bytes = is_grouped(split) ? grouped_codes(split).order_bytes : 0;
  const std::vector<uint8_t> order = order_bytes > 0 ? random_order(random, rows, columns, order_bytes) : std::vector<uint8_t>();
  const BlockShape block = block_shape(split);
  std::vector<uint8_t> planes[2];
  for (int64_t r = 0; r < rows; ++r) {
    const std::vector<uint8_t> scales_before = planes[1];
    for (int plane = 0; plane < plane_count(split); ++plane) {
      planes[plane].resize(static_cast<size_t>(plane_row_bytes(split, plane, columns)));
      for (uint8_t& byte : planes[plane]) byte = static_cast<uint8_t>(random());
    }
    for (size_t i = 0; block.columns != 0 && i < planes[0].size(); ++i) {
      if (is_high_byte(split, static_cast<int>(i) % block.bytes)) planes[0][i] &= 0xbf;
    }
    if (block.columns == 0) make_valid_planes(random, split, columns, planes[0], planes[1]);
    if (kind_of(split) == Split::fp8_tile && r % kTileScaleRows != 0) planes[1] = scales_before;
    if (order_bytes > 0) std::copy_n(order.data() + r * order_bytes, order_bytes, planes[1].end() - order_bytes);
    const uint8_t* const at[] = {planes[0].data(), planes[1].data()};
    const char* const fault = block_row_fault(split, at, columns);
    expect(fault == nullptr, name_of(split) + ": the test's weights have a fault");
    for (int plane = 0; plane < plane_count(split); ++plane) {
      weights.planes[plane].insert(weights.planes[plane].end(), planes[plane].begin(), planes[plane].end());
    }
  }
  return weights;
}

std::vector<float> values_of(const ShippedWeights& weights, int64_t row) {
  const uint8_t* planes[2] = {};
  for (int plane = 0; plane < plane_count(weights.split); ++plane) {
    planes[plane] = weights.planes[plane].data() + row * plane_row_bytes(weights.split, plane, weights.columns);
  }
  std::vector<float> values(static_cast<size_t>(weights.columns));
  block_row_to_floats(weights.split, planes, weights.columns, values.data());
  return values;
}

// The weights as they are stored.
std::vector<std::vector<float>> stored_values(const ShippedWeights& weights) {
  std::vector<std::vector<float>> rows;
  for (int64_t r = 0; r < weights.rows; ++r) rows.push_back(values_of(weights, r));
  return rows;
}

// The inputs in the order in which the matrix's columns are stored: that is the order of a product's sums.
std::vector<float> stored_inputs(const ShippedWeights& weights, const std::vector<float>& x) {
  const int order_bytes = is_grouped(weights.split) ? grouped_codes(weights.split).order_bytes : 0;
  if (order_bytes == 0) return x;
  std::vector<uint8_t> order;
  for (int64_t r = 0; r < weights.rows; ++r) {
    const auto end = weights.planes[1].begin() + (r + 1) * plane_row_bytes(weights.split, 1, weights.columns);
    order.insert(order.end(), end - order_bytes, end);
  }
  const auto columns = static_cast<size_t>(weights.columns);
  std::vector<float> stored(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t j = i % columns;
    stored[i] = x[i - j + static_cast<size_t>(order[2 * j] | order[2 * j + 1] << 8)];
  }
  return stored;
}

// Written in pieces of rows, from the last to the first.
void write(StoredMatrix& stored, const ShippedWeights& weights, int piece) {
  for (int64_t first = (weights.rows - 1) / piece * piece; first >= 0; first -= piece) {
    expect(stored.write(weights, first, std::min<int64_t>(piece, weights.rows - first)), name_of(weights.split) + " is not held");
  }
}

std::vector<float> expected_products(const std::vector<std::vector<float>>& rows, const std::vector<float>& x, int n) {
  std::vector<float> out;
  const auto columns = static_cast<int64_t>(rows[0].size());
  for (int i = 0; i < n; ++i) {
    const std::vector<float> in(x.begin() + columns * i, x.begin() + columns * (i + 1));
    for (const std::vector<float>& row : rows) out.push_back(test::reference_dot(in, row));
  }
  return out;
}

void equal_products(Devices& devices, const ShippedWeights& weights, int n) {
  StoredMatrix stored(devices.cuda, static_cast<WeightFormat>(weights.split), weights.rows, weights.columns);
  write(stored, weights, random_between(devices.random, 1, static_cast<int>(weights.rows)));
  const std::vector<float> x = random_floats(devices.random, n * weights.columns);
  const Floats in(devices.cuda, x);
  const Floats out(devices.cuda, n * weights.rows);
  devices.cuda->matmul(out.data(), weights.rows, stored.matrix, in.data(), weights.columns, n);
  const std::string what = name_of(weights.split) + ", " + std::to_string(weights.rows) + " x " + std::to_string(weights.columns) +
                           ", n " + std::to_string(n);
  expect_equal(what, out.values(), expected_products(stored_values(weights), stored_inputs(weights, x), n));
}

int64_t random_columns(std::mt19937& random, Split split, int most) {
  const int together =
      is_grouped(split) || kind_of(split) == Split::fp8_row || kind_of(split) == Split::fp8_tile ? 1 : columns_together(split);
  return int64_t{together} * random_between(random, 1, std::max(1, most / together));
}

void every_batch(Devices& devices, Split split) {
  for (const int n : {1, 2, 3, 7, 33}) {
    const int64_t rows = random_between(devices.random, 1, n == 33 ? 20 : 40);
    equal_products(devices, random_blocks(devices.random, split, rows, random_columns(devices.random, split, 1500)), n);
  }
  for (const int64_t columns : {256, 768, 2048}) {
    equal_products(devices, random_blocks(devices.random, split, 5, columns), 1);
  }
  // Enough rows that a warp computes two or four of them.
  const int64_t rows = devices.cuda->info().threads * 32 + 5;
  equal_products(devices, random_blocks(devices.random, split, rows, 256), 1);
}

// Orders of columns, whose pieces need not divide them.
void columns_in_another_order(Devices& devices) {
  for (const int bits : {4, 8}) {
    for (const int n : {1, 2, 7, 33}) {
      const int64_t rows = random_between(devices.random, 1, 20);
      const int64_t columns = random_between(devices.random, 1, 400);
      const auto order_bytes = static_cast<int>((2 * columns + rows - 1) / rows);
      const Split split = grouped_split({bits, ScaleType::bf16, n % 2 == 1, 64, order_bytes});
      equal_products(devices, random_blocks(devices.random, split, rows, columns), n);
    }
  }
}

void looked_up(Devices& devices, Split split) {
  const int64_t rows = random_between(devices.random, 1, 12);
  const ShippedWeights weights = random_blocks(devices.random, split, rows, random_columns(devices.random, split, 1500));
  StoredMatrix stored(devices.cuda, static_cast<WeightFormat>(split), rows, weights.columns);
  write(stored, weights, 3);
  std::vector<int32_t> ids;
  std::vector<float> expected;
  for (int i = 0; i < 5; ++i) {
    ids.push_back(random_between(devices.random, 0, static_cast<int>(rows) - 1));
    const std::vector<float> row = values_of(weights, ids.back());
    expected.insert(expected.end(), row.begin(), row.end());
  }
  const Floats out(devices.cuda, 5 * weights.columns);
  devices.cuda->embed(out.data(), stored.matrix, ids.data(), 5);
  expect_equal("looking rows up in " + name_of(split), out.values(), expected);
}

// Conversions equal those of the FP32 values.
void converted(Devices& devices, Split split) {
  const int64_t rows = random_between(devices.random, 1, 12);
  const ShippedWeights weights = random_blocks(devices.random, split, rows, random_columns(devices.random, split, 600));
  ShippedWeights values{Split::none_fp32, rows, weights.columns, {}};
  for (int64_t r = 0; r < rows; ++r) {
    const std::vector<float> row = values_of(weights, r);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(row.data());
    values.planes[0].insert(values.planes[0].end(), bytes, bytes + row.size() * sizeof(float));
  }
  for (const WeightFormat format :
       {WeightFormat::bf16, WeightFormat::fp16, WeightFormat::fp32, WeightFormat::int8, WeightFormat::nf4}) {
    StoredMatrix from_blocks(devices.cuda, format, rows, weights.columns);
    StoredMatrix from_values(devices.cuda, format, rows, weights.columns);
    write(from_blocks, weights, 5);
    write(from_values, values, 5);
    std::vector<int32_t> ids(static_cast<size_t>(rows));
    std::iota(ids.begin(), ids.end(), 0);
    const Floats got(devices.cuda, rows * weights.columns);
    const Floats expected(devices.cuda, rows * weights.columns);
    devices.cuda->embed(got.data(), from_blocks.matrix, ids.data(), static_cast<int>(rows));
    devices.cuda->embed(expected.data(), from_values.matrix, ids.data(), static_cast<int>(rows));
    expect_equal(name_of(split) + " into format " + std::to_string(static_cast<int>(format)), got.values(), expected.values());
  }
}

void takes_little_memory(Devices& devices, Split split) {
  const auto format = static_cast<WeightFormat>(split);
  const auto shipped = static_cast<double>(2048 * block_row_bytes(format, 2048));
  const auto bytes = static_cast<double>(devices.cuda->matrix_bytes(format, 2048, 2048));
  expect(bytes <= 1.01 * shipped, name_of(split) + " takes more memory than a file");
}

void refuses_other_weights(Devices& devices) {
  const ShippedWeights weights = random_blocks(devices.random, Split::q4_0, 4, 64);
  for (const WeightFormat format : {WeightFormat::q4_1, WeightFormat::fixed4, WeightFormat::mxfp4, WeightFormat::fp8}) {
    StoredMatrix matrix(devices.cuda, format, 4, 64);
    expect(!matrix.write(weights, 0, 4), "weights of q4_0 were written as others");
  }
}

}  // namespace

void test_blocks(Devices& devices) {
  for (const Split split : kBlockSplits) {
    every_batch(devices, split);
    looked_up(devices, split);
    converted(devices, split);
    takes_little_memory(devices, split);
  }
  for (const Split split : grouped_splits(devices.random)) {
    every_batch(devices, split);
    converted(devices, split);
    takes_little_memory(devices, split);
  }
  columns_in_another_order(devices);
  refuses_other_weights(devices);
}

}  // namespace odmoe::cuda_test
