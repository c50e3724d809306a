// Block formats: products, embeddings, conversions, and the bytes that a matrix takes.
#include <algorithm>
#include <cstring>

#include "../src/runtime/random_block_rows.h"
#include "native_tests.h"
#include "odmoe/block_values.h"
#include "reference_arithmetic.h"

namespace odmoe::test {
namespace {

struct NamedFormat {
  std::string name;
  Split split;
};

Split grouped(int bits, ScaleType scales, bool zeros, int group) {
  return static_cast<Split>(grouped_bits({bits, scales, zeros, group, 0}));
}

std::vector<NamedFormat> formats() {
  return {{"fp8_row", Split::fp8_row},
          {"fp8_tile", Split::fp8_tile},
          {"mxfp8", Split::mxfp8},
          {"nvfp4_multiplied", Split::nvfp4_multiplied},
          {"nvfp4_divided", Split::nvfp4_divided},
          {"q4_0", Split::q4_0},
          {"q4_1", Split::q4_1},
          {"q5_0", Split::q5_0},
          {"q5_1", Split::q5_1},
          {"q8_0", Split::q8_0},
          {"q2_k", Split::q2_k},
          {"q3_k", Split::q3_k},
          {"q4_k", Split::q4_k},
          {"q5_k", Split::q5_k},
          {"q6_k", Split::q6_k},
          {"iq4_nl", Split::iq4_nl},
          {"iq4_xs", Split::iq4_xs},
          {"grouped4 bf16 by 32", grouped(4, ScaleType::bf16, false, 32)},
          {"grouped4 fp16 zeros by 128", grouped(4, ScaleType::fp16, true, 128)},
          {"grouped4 fp32 by row", grouped(4, ScaleType::fp32, false, 0)},
          {"grouped4 fp32 zeros by 96", grouped(4, ScaleType::fp32, true, 96)},
          {"grouped8 fp16 zeros by 128", grouped(8, ScaleType::fp16, true, 128)},
          {"grouped8 bf16 by row", grouped(8, ScaleType::bf16, false, 0)},
          {"grouped8 fp32 zeros by 64", grouped(8, ScaleType::fp32, true, 64)}};
}

WeightFormat format_of(Split split) { return static_cast<WeightFormat>(split); }

std::vector<const uint8_t*> planes_at(const BlockRows& weights, int64_t row) {
  std::vector<const uint8_t*> planes;
  for (int i = 0; i < plane_count(weights.split); i++) planes.push_back(weights.at(i, row));
  return planes;
}

// A column order, as its pieces in the rows give it; empty: columns are in order.
std::vector<int> column_order(const BlockRows& weights) {
  const int64_t piece = is_grouped(weights.split) ? grouped_codes(weights.split).order_bytes : 0;
  if (piece == 0) return {};
  std::vector<uint8_t> bytes;
  for (int64_t row = 0; row < weights.rows; row++) {
    const uint8_t* const end = weights.at(1, row + 1);
    bytes.insert(bytes.end(), end - piece, end);
  }
  std::vector<int> order;
  for (size_t i = 0; i < static_cast<size_t>(weights.columns); i++) {
    order.push_back(bytes[2 * i] | bytes[2 * i + 1] << 8);
  }
  return order;
}

// Row-major values in the order in which the columns are stored.
std::vector<float> values_of(const BlockRows& weights) {
  std::vector<float> values(static_cast<size_t>(weights.rows * weights.columns));
  for (int64_t row = 0; row < weights.rows; row++) {
    block_row_to_floats(weights.split, planes_at(weights, row).data(), weights.columns, values.data() + row * weights.columns);
  }
  return values;
}

// Writes in pieces of rows, the later ones first.
bool write(Backend& backend, Matrix& matrix, const BlockRows& weights, int64_t piece) {
  for (int64_t first = (weights.rows - 1) / piece * piece; first >= 0; first -= piece) {
    const auto planes = planes_at(weights, first);
    if (!backend.write_rows(matrix, first, std::min(piece, weights.rows - first), weights.split, planes.data())) return false;
  }
  return true;
}

std::vector<float> product(Backend& backend, const Matrix& matrix, const std::vector<float>& x, int n) {
  DeviceFloats in(backend, std::vector<float>(x.begin(), x.begin() + n * matrix.columns));
  DeviceFloats out(backend, static_cast<size_t>(n * matrix.rows));
  backend.matmul(out.data(), matrix.rows, matrix, in.data(), matrix.columns, n);
  return out.read();
}

std::vector<float> reference_product(const BlockRows& weights, const std::vector<float>& x, int n) {
  const std::vector<float> values = values_of(weights);
  const std::vector<int> order = column_order(weights);
  const auto columns = static_cast<size_t>(weights.columns);
  const size_t padded = (columns + kLanes - 1) / kLanes * kLanes;
  std::vector<float> out;
  for (int i = 0; i < n; i++) {
    std::vector<float> in(padded);
    for (size_t j = 0; j < columns; j++) {
      in[j] = x[static_cast<size_t>(i) * columns + (order.empty() ? j : static_cast<size_t>(order[j]))];
    }
    for (auto row = values.begin(); row != values.end(); row += weights.columns) {
      std::vector<float> w(row, row + weights.columns);
      w.resize(padded);
      out.push_back(reference_dot(in, w));
    }
  }
  return out;
}

constexpr int kCounts[] = {1, 2, 3, 7, 33};

void check_products(Backend& backend, const BlockRows& weights, const std::string& name) {
  DeviceMatrix matrix(backend, format_of(weights.split), weights.rows, weights.columns);
  check(write(backend, matrix.matrix, weights, 3), "held");
  const auto x = random_values(static_cast<size_t>(33 * weights.columns), 9);
  const std::vector<float> expected = reference_product(weights, x, 33);
  for (const int n : kCounts) {
    check_same(product(backend, matrix.matrix, x, n), {expected.begin(), expected.begin() + n * weights.rows},
               name + " " + std::to_string(weights.rows) + "x" + std::to_string(weights.columns) + " n=" + std::to_string(n));
  }
}

void multiplies(const std::string& set, const NamedFormat& format) {
  auto backend = open_backend(set, 2);
  uint32_t seed = 1;
  const int together = columns_together(format.split);
  const bool any_columns = together == 1 || together == kFp8Block;
  for (const int64_t rows : {1, 5, 30}) {
    for (const int64_t columns : {32, 45, 96, 205, 256, 512, 1312}) {
      if (columns % together != 0 && !any_columns) continue;
      check_products(*backend, random_block_rows(format.split, rows, columns, seed++), format.name);
    }
  }
}

// A matrix of several runs of columns, groups of tiles and tasks.
void multiplies_large(const std::string& set, const NamedFormat& format) {
  auto backend = open_backend(set, 2);
  const int64_t columns = format.split == Split::fp8_tile ? 2100 : 2304;
  check_products(*backend, random_block_rows(format.split, 75, columns, 3), format.name);
}

void multiplies_in_a_column_order(const std::string& set) {
  auto backend = open_backend(set, 2);
  for (const int64_t rows : {1, 5, 64}) {
    for (const int64_t columns : {64, 205, 300}) {
      for (const int bits : {4, 8}) {
        const int piece = static_cast<int>((2 * columns + rows - 1) / rows);
        const auto split = static_cast<Split>(grouped_bits({bits, ScaleType::fp16, true, 32, piece}));
        check_products(*backend, random_block_rows(split, rows, columns, 5), "columns in another order");
      }
    }
  }
}

// Two experts with orders of their own, as one operation with a GLU behind it.
void gates_in_a_column_order(const std::string& set) {
  auto backend = open_backend(set, 2);
  const auto split = static_cast<Split>(grouped_bits({4, ScaleType::bf16, false, 64, 4}));
  const int64_t columns = 128;
  const int64_t rows = 64;
  const auto x = random_values(static_cast<size_t>(3 * columns), 3);
  DeviceFloats in(*backend, x);
  DeviceFloats gate_up(*backend, static_cast<size_t>(4 * rows));
  DeviceFloats out(*backend, static_cast<size_t>(4 * rows / 2));
  const BlockRows first = random_block_rows(split, rows, columns, 1);
  const BlockRows second = random_block_rows(split, rows, columns, 2);
  DeviceMatrix first_matrix(*backend, format_of(split), rows, columns);
  DeviceMatrix second_matrix(*backend, format_of(split), rows, columns);
  check(write(*backend, first_matrix.matrix, first, 64) && write(*backend, second_matrix.matrix, second, 64), "held");
  const Product products[] = {{out.data(), rows / 2, &first_matrix.matrix, in.data(), columns, 3},
                              {out.data() + 3 * rows / 2, rows / 2, &second_matrix.matrix, in.data(), columns, 1}};
  const GluShape shape;
  backend->multiply_glu(products, 2, gate_up.data(), shape, nullptr);
  std::vector<float> sums = reference_product(first, x, 3);
  const auto one = reference_product(second, x, 1);
  sums.insert(sums.end(), one.begin(), one.end());
  std::vector<float> expected;
  for (size_t row = 0; row < 4; row++) {
    for (size_t i = 0; i < 32; i++) expected.push_back(reference_glu(sums[row * 64 + i], sums[row * 64 + 32 + i], shape));
  }
  check_same(out.read(), expected, "gated products");
}

void refuses_a_damaged_order(const std::string& set) {
  auto backend = open_backend(set);
  const auto split = static_cast<Split>(grouped_bits({4, ScaleType::bf16, false, 32, 16}));
  BlockRows weights = random_block_rows(split, 8, 64, 1);
  weights.planes[1].back() = 1;  // the last column's place becomes at least 256
  DeviceMatrix matrix(*backend, format_of(split), 8, 64);
  check(write(*backend, matrix.matrix, weights, 8), "held");
  const auto x = random_values(64, 1);
  check_refused(ErrorCode::model_corrupt, [&] { product(*backend, matrix.matrix, x, 1); });
}

// Rows of two matrices with different scales lie in one, as an expert's gate and up rows do.
void multiplies_by_several_scales(const std::string& set) {
  auto backend = open_backend(set);
  for (const Split split : {Split::nvfp4_multiplied, Split::nvfp4_divided}) {
    BlockRows weights = random_block_rows(split, 22, 96, 1);
    const BlockRows other = random_block_rows(split, 22, 96, 2);
    const auto from = static_cast<std::ptrdiff_t>(10 * plane_row_bytes(split, 1, 96));
    std::copy(other.planes[1].begin() + from, other.planes[1].end(), weights.planes[1].begin() + from);
    check_products(*backend, weights, "several scales");
  }
}

void looks_up_rows(const std::string& set) {
  auto backend = open_backend(set);
  for (const NamedFormat& format : formats()) {
    if (!is_embedding_format(format_of(format.split))) continue;
    const BlockRows weights = random_block_rows(format.split, 7, 768, 4);
    DeviceMatrix matrix(*backend, format_of(format.split), 7, 768);
    check(write(*backend, matrix.matrix, weights, 2), "held");
    const std::vector<float> values = values_of(weights);
    DeviceFloats out(*backend, 3 * 768);
    const int32_t ids[] = {6, 0, 3};
    backend->embed(out.data(), matrix.matrix, ids, 3);
    std::vector<float> expected;
    for (const int32_t id : ids) expected.insert(expected.end(), values.begin() + id * 768, values.begin() + (id + 1) * 768);
    check_same(out.read(), expected, format.name);
  }
}

void becomes_other_formats(const std::string& set) {
  auto backend = open_backend(set);
  for (const NamedFormat& format : formats()) {
    const BlockRows weights = random_block_rows(format.split, 13, 512, 6);
    const std::vector<float> values = values_of(weights);
    for (const WeightFormat other :
         {WeightFormat::bf16, WeightFormat::fp16, WeightFormat::fp32, WeightFormat::int8, WeightFormat::nf4}) {
      DeviceMatrix expected(*backend, other, 13, 512, Split::none_fp32, values.data());
      DeviceMatrix matrix(*backend, other, 13, 512);
      std::memcpy(matrix.matrix.storage.data, expected.matrix.storage.data, expected.matrix.storage.bytes);
      check(write(*backend, matrix.matrix, weights, 4), "held");
      check(std::memcmp(matrix.matrix.storage.data, expected.matrix.storage.data, expected.matrix.storage.bytes) == 0,
            format.name + " as format " + std::to_string(static_cast<int>(other)));
    }
    DeviceMatrix own(*backend, format_of(format.split), 13, 512);
    const auto* const floats = reinterpret_cast<const uint8_t*>(values.data());
    check(!backend->write_rows(own.matrix, 0, 1, Split::none_fp32, &floats), "values that were not shipped so are held");
    const Split another = format.split == Split::q4_0 ? Split::iq4_nl : Split::q4_0;
    check(!write(*backend, own.matrix, random_block_rows(another, 13, 512, 1), 13), "another block format is held");
  }
}

void stores_the_same_bytes(const std::string& set) {
  auto plain = open_backend("scalar");
  auto backend = open_backend(set);
  for (const NamedFormat& format : formats()) {
    const BlockRows weights = random_block_rows(format.split, 22, 512, 8);
    DeviceMatrix whole(*plain, format_of(format.split), 22, 512);
    DeviceMatrix pieces(*backend, format_of(format.split), 22, 512);
    for (DeviceMatrix* const matrix : {&whole, &pieces}) {
      std::memset(matrix->matrix.storage.data, 0, matrix->matrix.storage.bytes);
    }
    check(write(*plain, whole.matrix, weights, 22), "held");
    check(write(*backend, pieces.matrix, random_block_rows(format.split, 22, 512, 9), 5), "held");
    check(write(*backend, pieces.matrix, weights, 1), "held");
    check(std::memcmp(whole.matrix.storage.data, pieces.matrix.storage.data, whole.matrix.storage.bytes) == 0, format.name);
  }
}

void takes_the_bytes_that_are_shipped(const std::string& set) {
  auto backend = open_backend(set);
  for (const NamedFormat& format : formats()) {
    // The rows of each four of fp8_tile share their scales in the files, too.
    const int64_t shipped = format.split == Split::fp8_tile ? 2048 * 2048 : 2048 * block_row_bytes(format_of(format.split), 2048);
    const auto held = static_cast<double>(backend->matrix_bytes(format_of(format.split), 2048, 2048));
    check(held <= 1.01 * static_cast<double>(shipped), format.name + " takes more memory than allowed");
  }
}

}  // namespace

void add_block_weight_cases(std::vector<Case>& cases) {
  for (const std::string& set : instruction_sets()) {
    const std::string name = "block weights " + set + ": ";
    for (const NamedFormat& format : formats()) {
      cases.push_back({name + format.name + " multiplies", [=] { multiplies(set, format); }});
      cases.push_back({name + format.name + " multiplies large matrices", [=] { multiplies_large(set, format); }});
    }
    cases.push_back({name + "multiplies in a column order", [=] { multiplies_in_a_column_order(set); }});
    cases.push_back({name + "gates in a column order", [=] { gates_in_a_column_order(set); }});
    cases.push_back({name + "refuses a damaged order", [=] { refuses_a_damaged_order(set); }});
    cases.push_back({name + "multiplies by several scales", [=] { multiplies_by_several_scales(set); }});
    cases.push_back({name + "looks up rows", [=] { looks_up_rows(set); }});
    cases.push_back({name + "becomes other formats", [=] { becomes_other_formats(set); }});
    cases.push_back({name + "stores the same bytes", [=] { stores_the_same_bytes(set); }});
    cases.push_back({name + "takes the bytes that are shipped", [=] { takes_the_bytes_that_are_shipped(set); }});
  }
}

}  // namespace odmoe::test
