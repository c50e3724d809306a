// fixed4 returns and multiplies weights to the bit, like BF16, if it can hold them; it refuses all others.
#include <algorithm>
#include <cstring>
#include <cmath>

#include "native_tests.h"
#include "odmoe/arithmetic.h"
#include "reference_arithmetic.h"

namespace odmoe::test {
namespace {

struct Size {
  int64_t rows;
  int64_t columns;
};
constexpr Size kSizes[] = {{1, 1}, {3, 31}, {4, 32}, {7, 33}, {17, 205}, {66, 512}, {10, 2081}, {39, 1137}};

// Number of escapes that fit in a tile: backend.h promises none; weight_layout.h has room for one in 256 weights, rounded up.
int64_t room_for_escapes(int64_t columns) { return ((36 + columns * 4 / 256 * 4 + 63) / 64 * 64 - 36) / 4; }

using Bits = std::vector<uint16_t>;

Bits bf16_of(const std::vector<float>& values) {
  Bits bits;
  for (const float value : values) bits.push_back(reference_to_bf16(value));
  return bits;
}

Bits normal(Size size, uint32_t seed) { return bf16_of(random_values(static_cast<size_t>(size.rows * size.columns), seed, 0.03f)); }

uint16_t with_exponent(uint16_t bits, int exponent) { return static_cast<uint16_t>((bits & 0x807f) | exponent << 7); }

// Sixteen exponents in turn, and `count` others in each tile, at places that `place` chooses: all in one block, or spread out.
Bits with_escapes(Size size, int64_t count, bool spread) {
  Bits bits;
  std::mt19937 generator(3);
  for (int64_t i = 0; i < size.rows * size.columns; ++i) {
    bits.push_back(with_exponent(static_cast<uint16_t>(generator()), 110 + static_cast<int>(i % 16)));
  }
  for (int64_t tile = 0; tile * 4 < size.rows; ++tile) {
    const int64_t first = tile * 4 * size.columns;
    const int64_t weights = std::min(size.rows - tile * 4, int64_t{4}) * size.columns;
    for (int64_t i = 0; i < std::min(count, weights); ++i) {
      const int64_t at = first + (spread ? i * weights / count : weights - 1 - i);
      bits[static_cast<size_t>(at)] = with_exponent(bits[static_cast<size_t>(at)], i % 3 == 0 ? 255 : 1 + static_cast<int>(i % 90));
    }
  }
  return bits;
}

struct Kind {
  const char* name;
  Bits (*make)(Size size);
};
constexpr Kind kKinds[] = {
    {"normal", [](Size size) { return normal(size, 1); }},
    {"zeros", [](Size size) { return Bits(static_cast<size_t>(size.rows * size.columns)); }},
    {"constant", [](Size size) { return Bits(static_cast<size_t>(size.rows * size.columns), 0xbf81); }},
    {"infinities and NaN alone", [](Size size) { return Bits(static_cast<size_t>(size.rows * size.columns), 0xff80); }},
    {"sorted",
     [](Size size) {
       Bits bits = normal(size, 2);
       std::sort(bits.begin(), bits.end());
       return bits;
     }},
    {"full of spread escapes", [](Size size) { return with_escapes(size, room_for_escapes(size.columns), true); }},
    {"full of escapes at the end", [](Size size) { return with_escapes(size, room_for_escapes(size.columns), false); }},
};

std::string describe(const Kind& kind, Size size) {
  return std::string(kind.name) + " " + std::to_string(size.rows) + "x" + std::to_string(size.columns);
}

bool write_pieces(Backend& backend, Matrix& matrix, const Bits& bits, int64_t piece) {
  for (int64_t row = 0; row < matrix.rows; row += piece) {
    const uint8_t* const planes[1] = {reinterpret_cast<const uint8_t*>(bits.data() + row * matrix.columns)};
    if (!backend.write_rows(matrix, row, std::min(piece, matrix.rows - row), Split::none_bf16, planes)) return false;
  }
  return true;
}

// Every bit comes back, for any pieces, and over any old contents.
void gives_back(const std::string& set) {
  auto backend = open_backend(set);
  for (const Kind& kind : kKinds) {
    for (const Size size : kSizes) {
      const Bits bits = kind.make(size);
      for (const int64_t piece : {int64_t{1}, int64_t{3}, int64_t{16}, size.rows}) {
        DeviceMatrix matrix(*backend, WeightFormat::fixed4, size.rows, size.columns);
        std::mt19937 generator(11);
        auto* const before = static_cast<uint8_t*>(matrix.matrix.storage.data);
        // Small numbers, which could be mistaken for numbers of blocks and of escapes.
        std::generate_n(before, matrix.matrix.storage.bytes, [&] { return static_cast<uint8_t>(generator() % 3); });
        check(write_pieces(*backend, matrix.matrix, bits, piece), describe(kind, size) + " was refused");
        std::vector<int32_t> ids;
        for (int64_t row = 0; row < size.rows; ++row) ids.push_back(static_cast<int32_t>(row));
        DeviceFloats out(*backend, bits.size());
        backend->embed(out.data(), matrix.matrix, ids.data(), static_cast<int>(ids.size()));
        const std::vector<float> read = out.read();
        for (size_t i = 0; i < bits.size(); ++i) {
          uint32_t word;
          std::memcpy(&word, &read[i], 4);
          check(word == static_cast<uint32_t>(bits[i]) << 16, describe(kind, size) + ": value " + std::to_string(i));
        }
      }
    }
  }
}

// The product of n rows by the weights in a format, on an instruction set.
std::vector<float> product(Backend& backend, WeightFormat format, Size size, const Bits& bits, const std::vector<float>& x, int n) {
  DeviceMatrix matrix(backend, format, size.rows, size.columns, Split::none_bf16, bits.data());
  DeviceFloats in(backend, x);
  DeviceFloats out(backend, static_cast<size_t>(n * size.rows));
  backend.matmul(out.data(), size.rows, matrix.matrix, in.data(), size.columns, n);
  return out.read();
}

void multiplies_like_bf16(const std::string& set) {
  auto scalar = open_backend("scalar");
  auto backend = open_backend(set, 2);
  for (const Kind& kind : kKinds) {
    for (const Size size : kSizes) {
      const Bits bits = kind.make(size);
      const auto x = random_values(static_cast<size_t>(20 * size.columns), 5);
      for (int n = 1; n <= 20; n += size.rows * size.columns > 40000 ? 2 : 1) {
        const std::vector<float> in(x.begin(), x.begin() + n * size.columns);
        const std::string what = describe(kind, size) + " n=" + std::to_string(n);
        const auto fixed4 = product(*backend, WeightFormat::fixed4, size, bits, in, n);
        check_same(fixed4, product(*backend, WeightFormat::bf16, size, bits, in, n), what);
        if (n == 1) check_same(fixed4, product(*scalar, WeightFormat::fixed4, size, bits, in, n), what + " against scalar");
      }
    }
  }
}

// Several products at once give the same results as one by one, for all formats and sizes.
void multiplies_together(const std::string& set) {
  auto backend = open_backend(set, 3);
  const Size sizes[] = {{66, 512}, {7, 33}, {130, 512}};
  const WeightFormat formats[] = {WeightFormat::fixed4, WeightFormat::bf16, WeightFormat::fixed4};
  const int rows[] = {9, 1, 2};
  std::vector<std::unique_ptr<DeviceMatrix>> matrices;
  std::vector<std::unique_ptr<DeviceFloats>> inputs;
  std::vector<std::unique_ptr<DeviceFloats>> outputs;
  std::vector<Product> products;
  for (size_t i = 0; i < 3; ++i) {
    const Bits bits = normal(sizes[i], static_cast<uint32_t>(i));
    matrices.push_back(
        std::make_unique<DeviceMatrix>(*backend, formats[i], sizes[i].rows, sizes[i].columns, Split::none_bf16, bits.data()));
    inputs.push_back(std::make_unique<DeviceFloats>(
        *backend, random_values(static_cast<size_t>(rows[i] * sizes[i].columns), static_cast<uint32_t>(i))));
    outputs.push_back(std::make_unique<DeviceFloats>(*backend, static_cast<size_t>(rows[i] * sizes[i].rows)));
    products.push_back({outputs[i]->data(), sizes[i].rows, &matrices[i]->matrix, inputs[i]->data(), sizes[i].columns, rows[i]});
  }
  backend->multiply(products.data(), 3);
  for (size_t i = 0; i < 3; ++i) {
    const auto together = outputs[i]->read();
    backend->multiply(&products[i], 1);
    check_same(together, outputs[i]->read(), "product " + std::to_string(i));
  }
}

bool holds(Backend& backend, Size size, const Bits& bits) {
  DeviceMatrix matrix(backend, WeightFormat::fixed4, size.rows, size.columns);
  return write_pieces(backend, matrix.matrix, bits, size.rows);
}

void refuses_what_it_cannot_hold(const std::string& set) {
  auto backend = open_backend(set);
  const Size size{12, 96};
  const int64_t room = room_for_escapes(size.columns);
  check(holds(*backend, size, with_escapes(size, room, true)), "a tile as full of escapes as can be");
  check(!holds(*backend, size, with_escapes(size, room + 1, true)), "one escape too many");
  std::mt19937 generator(9);
  Bits random(static_cast<size_t>(size.rows * size.columns));
  for (uint16_t& bits : random) bits = static_cast<uint16_t>(generator());
  check(!holds(*backend, size, random), "random bits");
  // Values that are not BF16: they have the lowest bit of an FP32, or of an FP16's mantissa.
  std::vector<float> floats(random.size(), 1.0f);
  DeviceMatrix matrix(*backend, WeightFormat::fixed4, size.rows, size.columns);
  const uint8_t* const fp32[1] = {reinterpret_cast<const uint8_t*>(floats.data())};
  check(backend->write_rows(matrix.matrix, 0, size.rows, Split::none_fp32, fp32), "ones as FP32");
  floats.back() = std::nextafter(1.0f, 2.0f);
  check(!backend->write_rows(matrix.matrix, 0, size.rows, Split::none_fp32, fp32), "an FP32 that is no BF16");
  Bits halves(random.size(), 0x3c00);
  const uint8_t* const fp16[1] = {reinterpret_cast<const uint8_t*>(halves.data())};
  check(backend->write_rows(matrix.matrix, 0, size.rows, Split::none_fp16, fp16), "ones as FP16");
  halves.back() = 0x3c01;
  check(!backend->write_rows(matrix.matrix, 0, size.rows, Split::none_fp16, fp16), "an FP16 that is no BF16");
}

}  // namespace

void add_fixed4_cases(std::vector<Case>& cases) {
  for (const std::string& set : instruction_sets()) {
    const std::string name = "fixed4 " + set + ": ";
    cases.push_back({name + "gives every bit back", [=] { gives_back(set); }});
    cases.push_back({name + "multiplies like bf16", [=] { multiplies_like_bf16(set); }});
    cases.push_back({name + "multiplies several together", [=] { multiplies_together(set); }});
    cases.push_back({name + "refuses what it cannot hold", [=] { refuses_what_it_cannot_hold(set); }});
  }
}

}  // namespace odmoe::test
