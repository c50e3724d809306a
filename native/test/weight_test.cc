// Writes weights: every split into every format, preserved bits, pieces of rows, embedding lookup.
#include <cmath>
#include <cstring>
#include <thread>

#include "native_tests.h"
#include "reference_arithmetic.h"

namespace odmoe::test {
namespace {

struct Planes {
  std::vector<std::vector<uint8_t>> bytes;
  // Pointers to value `from` of each plane.
  std::vector<const uint8_t*> at(size_t from, Split split) const {
    std::vector<const uint8_t*> pointers;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const bool whole = split == Split::none_bf16 || split == Split::none_fp16;
      const size_t width = split == Split::none_fp32 ? 4 : whole || (split == Split::fp32_e8_sm8_r16 && i == 2) ? 2 : 1;
      pointers.push_back(bytes[i].data() + from * width);
    }
    return pointers;
  }
};

// Cuts values (given as the bits of their type) as docs/pack-format.md defines.
Planes cut(const std::vector<uint32_t>& values, Split split) {
  Planes planes;
  planes.bytes.resize(3);
  const auto put = [&](size_t plane, uint32_t value, int width) {
    for (int i = 0; i < width; ++i) planes.bytes[plane].push_back(static_cast<uint8_t>(value >> 8 * i));
  };
  for (const uint32_t v : values) {
    switch (split) {
      case Split::none_bf16:
      case Split::none_fp16: put(0, v, 2); break;
      case Split::none_fp32: put(0, v, 4); break;
      case Split::bf16_e8_sm8:
        put(0, v >> 7 & 255, 1);
        put(1, (v >> 15 & 1) << 7 | (v & 127), 1);
        break;
      case Split::fp16_hi8_lo8:
        put(0, v >> 8, 1);
        put(1, v & 255, 1);
        break;
      case Split::fp32_e8_sm8_r16:
        put(0, v >> 23 & 255, 1);
        put(1, (v >> 31) << 7 | (v >> 16 & 127), 1);
        put(2, v & 65535, 2);
        break;
      case Split::fp16_e5_lo8_s1m2:
        put(0, v >> 10 & 31, 1);
        put(1, v & 255, 1);
        put(2, (v >> 15 & 1) << 2 | (v >> 8 & 3), 1);
        break;
      default: break;  // values of other splits share scales
    }
  }
  return planes;
}

float value_of(uint32_t bits, Split split) {
  if (split == Split::none_bf16 || split == Split::bf16_e8_sm8) return reference_of_bf16(static_cast<uint16_t>(bits));
  if (split == Split::none_fp16 || split == Split::fp16_hi8_lo8 || split == Split::fp16_e5_lo8_s1m2)
    return reference_of_half(static_cast<uint16_t>(bits));
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

constexpr Split kSplits[] = {Split::none_bf16,    Split::none_fp16,       Split::none_fp32,       Split::bf16_e8_sm8,
                             Split::fp16_hi8_lo8, Split::fp32_e8_sm8_r16, Split::fp16_e5_lo8_s1m2};
constexpr WeightFormat kFloatFormats[] = {WeightFormat::bf16, WeightFormat::fp16, WeightFormat::fp32};

void write_all(Backend& backend, Matrix& matrix, const Planes& planes, Split split, int64_t piece) {
  for (int64_t row = 0; row < matrix.rows; row += piece) {
    const auto pointers = planes.at(static_cast<size_t>(row * matrix.columns), split);
    check(backend.write_rows(matrix, row, std::min(piece, matrix.rows - row), split, pointers.data()),
          "the format cannot hold the rows from " + std::to_string(row) + " on");
  }
}

std::vector<float> read_all(Backend& backend, const Matrix& matrix) {
  std::vector<int32_t> ids;
  for (int64_t row = 0; row < matrix.rows; ++row) ids.push_back(static_cast<int32_t>(row));
  DeviceFloats out(backend, static_cast<size_t>(matrix.rows * matrix.columns));
  backend.embed(out.data(), matrix, ids.data(), static_cast<int>(ids.size()));
  return out.read();
}

// Every 16-bit pattern (and a sample of 32-bit ones), written in pieces, is read back with the format's rounding.
void converts(const std::string& set) {
  auto backend = open_backend(set);
  const int64_t columns = 257;
  const int64_t rows = 256;
  std::mt19937 generator(7);
  for (const Split split : kSplits) {
    const bool wide = split == Split::none_fp32 || split == Split::fp32_e8_sm8_r16;
    std::vector<uint32_t> values;
    for (uint32_t i = 0; i < rows * columns; ++i) values.push_back(wide ? static_cast<uint32_t>(generator()) : i % 65536);
    // Values near the edges of FP16: denormal, halfway cases, overflow.
    for (uint32_t i = 0; wide && i < 20000; ++i) values[i] = 0x33000000u + i * 0x1a3d + (i % 3 == 0 ? 0 : 0x80000000u);
    const Planes planes = cut(values, split);
    for (const WeightFormat format : kFloatFormats) {
      DeviceMatrix matrix(*backend, format, rows, columns);
      write_all(*backend, matrix.matrix, planes, split, 7);
      std::vector<float> expected;
      for (const uint32_t bits : values) expected.push_back(reference_store(format, {value_of(bits, split)}).values[0]);
      check_same(read_all(*backend, matrix.matrix), expected,
                 "split " + std::to_string(static_cast<int>(split)) + " format " + std::to_string(static_cast<int>(format)));
    }
  }
}

// BF16, FP32: bit for bit, NaN payloads too.
void keeps_bits(const std::string& set) {
  auto backend = open_backend(set);
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  DeviceMatrix bf16(*backend, WeightFormat::bf16, 64, 1024, Split::none_bf16, halves.data());
  const std::vector<float> read = read_all(*backend, bf16.matrix);
  for (size_t i = 0; i < halves.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, &read[i], 4);
    check(bits == static_cast<uint32_t>(halves[i]) << 16, "bf16 pattern " + std::to_string(i));
  }
  std::mt19937 generator(8);
  std::vector<uint32_t> words(4096);
  for (uint32_t& word : words) word = static_cast<uint32_t>(generator()) | (generator() % 4 == 0 ? 0x7f800000u : 0u);
  DeviceMatrix fp32(*backend, WeightFormat::fp32, 4, 1024, Split::none_fp32, words.data());
  const std::vector<float> same = read_all(*backend, fp32.matrix);
  check(std::memcmp(same.data(), words.data(), words.size() * 4) == 0, "fp32 patterns");
}

// The storage's bytes do not depend on the pieces, the split of the same values, the instruction set, or old contents.
void stores_the_same_bytes(const std::string& set) {
  auto plain = open_backend("scalar");
  auto backend = open_backend(set);
  const int64_t rows = 24;
  const int64_t columns = 205;
  std::vector<uint32_t> values;
  const auto random = random_values(static_cast<size_t>(rows * columns), 9, 0.1f);
  for (const float w : random) values.push_back(reference_to_bf16(w));
  for (int64_t i = 0; i < columns; ++i) values[static_cast<size_t>(3 * columns + i)] = 0;
  values[5] = 0x7fc0;
  values[static_cast<size_t>(columns)] = 0x7f80;
  for (const WeightFormat format :
       {WeightFormat::bf16, WeightFormat::fp16, WeightFormat::fp32, WeightFormat::int8, WeightFormat::nf4, WeightFormat::fixed4}) {
    DeviceMatrix whole(*plain, format, rows, columns);
    DeviceMatrix pieces(*backend, format, rows, columns);
    std::memset(pieces.matrix.storage.data, 0xff, pieces.matrix.storage.bytes);
    write_all(*plain, whole.matrix, cut(values, Split::none_bf16), Split::none_bf16, rows);
    write_all(*backend, pieces.matrix, cut(values, Split::bf16_e8_sm8), Split::bf16_e8_sm8, 5);
    check(whole.matrix.storage.bytes == pieces.matrix.storage.bytes, "sizes");
    check(std::memcmp(whole.matrix.storage.data, pieces.matrix.storage.data, whole.matrix.storage.bytes) == 0,
          "format " + std::to_string(static_cast<int>(format)));
  }
}

void refuses_wrong_rows(const std::string& set) {
  auto backend = open_backend(set);
  DeviceMatrix matrix(*backend, WeightFormat::bf16, 4, 32);
  const std::vector<uint16_t> values(1024);
  const uint8_t* const planes[1] = {reinterpret_cast<const uint8_t*>(values.data())};
  check_refused(ErrorCode::internal, [&] { backend->write_rows(matrix.matrix, 2, 3, Split::none_bf16, planes); });
  check_refused(ErrorCode::internal, [&] { backend->write_rows(matrix.matrix, -1, 1, Split::none_bf16, planes); });
  DeviceFloats out(*backend, 64);
  const int32_t outside[2] = {4, -1};
  check_refused(ErrorCode::request_invalid, [&] { backend->embed(out.data(), matrix.matrix, outside, 1); });
  check_refused(ErrorCode::request_invalid, [&] { backend->embed(out.data(), matrix.matrix, outside + 1, 1); });
  DeviceMatrix shipped(*backend, WeightFormat::mxfp4, 4, 32);
  const int32_t inside = 0;
  check_refused(ErrorCode::internal, [&] { backend->embed(out.data(), shipped.matrix, &inside, 1); });
}

// A looked-up row has the values that products use: a product with a unit vector gives one of its columns.
void looks_up_quantized_rows(const std::string& set) {
  auto backend = open_backend(set);
  constexpr int64_t kRows = 21;
  constexpr int64_t kColumns = 203;
  std::vector<uint32_t> values(static_cast<size_t>(kRows * kColumns));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0x3c00u + static_cast<uint32_t>(i * 2654435761u >> 20 & 0x81ffu);
  const Planes planes = cut(values, Split::none_bf16);
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4}) {
    DeviceMatrix matrix(*backend, format, kRows, kColumns);
    write_all(*backend, matrix.matrix, planes, Split::none_bf16, kRows);
    const std::vector<float> rows = read_all(*backend, matrix.matrix);
    std::vector<float> unit(kColumns * kColumns);
    for (int64_t i = 0; i < kColumns; ++i) unit[static_cast<size_t>(i * kColumns + i)] = 1;
    DeviceFloats in(*backend, unit);
    DeviceFloats out(*backend, static_cast<size_t>(kColumns * kRows));
    backend->matmul(out.data(), kRows, matrix.matrix, in.data(), kColumns, static_cast<int>(kColumns));
    const std::vector<float> columns = out.read();
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t column = 0; column < kColumns; ++column) {
        check(rows[static_cast<size_t>(row * kColumns + column)] == columns[static_cast<size_t>(column * kRows + row)],
              "row " + std::to_string(row) + ", column " + std::to_string(column));
      }
    }
  }
}

// Rows are written from one thread while another multiplies by another matrix.
void writes_while_computing(const std::string& set) {
  auto backend = open_backend(set, 2);
  const int64_t size = 96;
  const auto values = random_values(static_cast<size_t>(size * size), 10);
  DeviceMatrix computing(*backend, WeightFormat::bf16, size, size, Split::none_fp32, values.data());
  DeviceMatrix writing(*backend, WeightFormat::bf16, size, size);
  DeviceFloats in(*backend, random_values(static_cast<size_t>(size), 11));
  DeviceFloats out(*backend, static_cast<size_t>(size));
  backend->matmul(out.data(), size, computing.matrix, in.data(), size, 1);
  const std::vector<float> expected = out.read();
  std::thread writer([&] {
    const uint8_t* const planes[1] = {reinterpret_cast<const uint8_t*>(values.data())};
    for (int i = 0; i < 50; ++i) backend->write_rows(writing.matrix, 0, size, Split::none_fp32, planes);
  });
  std::vector<float> got;
  for (int i = 0; i < 50; ++i) {
    backend->matmul(out.data(), size, computing.matrix, in.data(), size, 1);
    got = out.read();
    if (got != expected) break;
  }
  writer.join();
  check_same(got, expected, "product while writing");
}

}  // namespace

void add_weight_cases(std::vector<Case>& cases) {
  for (const std::string& set : instruction_sets()) {
    const std::string name = "weights " + set + ": ";
    cases.push_back({name + "converts every split", [=] { converts(set); }});
    cases.push_back({name + "keeps bits", [=] { keeps_bits(set); }});
    cases.push_back({name + "stores the same bytes", [=] { stores_the_same_bytes(set); }});
    cases.push_back({name + "refuses wrong rows", [=] { refuses_wrong_rows(set); }});
    cases.push_back({name + "looks up quantized rows", [=] { looks_up_quantized_rows(set); }});
    cases.push_back({name + "writes while computing", [=] { writes_while_computing(set); }});
  }
}

}  // namespace odmoe::test
