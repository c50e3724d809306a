// Parts of the CUDA kernels that the processor can also run: the layout's index arithmetic, conversions, codes.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "../src/backends/cuda/fixed4_lookup.h"
#include "../src/backends/cuda/fixed4_rows.h"
#include "../src/backends/cuda/multiply_parts.h"
#include "../src/backends/cuda/weight_layout.h"
#include "../src/backends/cuda/weight_values.h"
#include "native_tests.h"
#include "reference_arithmetic.h"

namespace odmoe::test {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::bf16, WeightFormat::fp16, WeightFormat::fp32,
                                     WeightFormat::int8, WeightFormat::nf4,  WeightFormat::fixed4};

void pieces_cover_every_step_once() {
  for (const WeightFormat format : kFormats) {
    const int main = cuda::main_steps(format);
    for (int steps = 1; steps <= 140; ++steps) {
      std::vector<int> taken(static_cast<size_t>(steps * kLanes));
      int next = 0;
      for (int number = 0; number < cuda::piece_count(steps, main); ++number) {
        const cuda::Piece piece = cuda::piece_at(steps, main, number);
        check(piece.first == next && piece.steps <= main && piece.first % piece.steps == 0, "a piece begins elsewhere");
        next += piece.steps;
        for (int step = piece.first; step < next; ++step) {
          const cuda::Piece same = cuda::piece_of(steps, main, step);
          check(same.first == piece.first && same.steps == piece.steps, "a step belongs to another piece");
          for (int lane = 0; lane < kLanes; ++lane) {
            ++taken.at(static_cast<size_t>(cuda::value_place(piece, lane, step - piece.first)));
          }
        }
      }
      check(next == steps, "pieces end elsewhere");
      check(std::all_of(taken.begin(), taken.end(), [](int count) { return count == 1; }), "a place is taken twice");
    }
  }
}

void rows_and_vectors_are_aligned() {
  for (const WeightFormat format : kFormats) {
    for (const int64_t columns : {1, 31, 32, 33, 64, 768, 1000, 1408, 2048, 4096}) {
      for (int64_t row = 0; row < 9; ++row) check(cuda::row_offset(format, columns, row) % 16 == 0, "a row is not aligned");
      const int64_t end = cuda::row_offset(format, columns, 8) + cuda::row_bytes(format, columns);
      check(static_cast<uint64_t>(end) <= cuda::matrix_storage_bytes(format, 9, columns), "the last row has no room");
    }
  }
}

void gated_groups_pair_gate_and_up_rows() {
  cuda::MultiplyPart part = {};
  for (part.rows = 2; part.rows <= 40; part.rows += 2) {
    for (const int group_rows : {2, 4, 8}) {
      std::vector<int> outputs(static_cast<size_t>(part.rows / 2));
      for (int group = 0; group < cuda::row_groups(part, group_rows); ++group) {
        for (int slot = 0; slot < group_rows; slot += 2) {
          const int gate = cuda::row_of_group(part, true, group, group_rows, slot);
          check(cuda::row_of_group(part, true, group, group_rows, slot + 1) == gate + part.rows / 2, "not its up row");
          if ((group * group_rows + slot) / 2 < part.rows / 2) ++outputs.at(static_cast<size_t>(gate));
        }
      }
      check(std::all_of(outputs.begin(), outputs.end(), [](int count) { return count == 1; }), "an output is missing");
    }
  }
}

void halves_convert() {
  for (uint32_t half = 0; half < 65536; ++half) {
    const float expected = reference_of_half(static_cast<uint16_t>(half));
    const float got = cuda::float_of_half(half);
    check_same(&got, &expected, 1, "FP32 of a half");
    if (expected == expected) check(cuda::half_of_float(expected) == half, "a half of its FP32");
  }
}

void floats_round() {
  std::mt19937 random(1);
  for (int i = 0; i < 300000; ++i) {
    const float x = cuda::float_of_bits(static_cast<uint32_t>(random()));
    if (std::isnan(x)) {
      check(std::isnan(cuda::float_of_half(cuda::half_of_float(x))), "NaN as a half");
      check(std::isnan(cuda::float_of_bf16(cuda::bf16_of_float(x))), "NaN as BF16");
      continue;
    }
    check(cuda::half_of_float(x) == reference_to_half(x), "rounding to a half");
    check(cuda::bf16_of_float(x) == reference_to_bf16(x), "rounding to BF16");
  }
  for (int exponent = 95; exponent < 150; ++exponent) {
    for (uint32_t step = 0; step < 4096; ++step) {
      const float x = cuda::float_of_bits(static_cast<uint32_t>(exponent) << 23 | step << 11);
      check(cuda::half_of_float(x) == reference_to_half(x), "rounding to a half");
    }
  }
}

std::vector<float> row_with_specials(uint32_t seed) {
  std::vector<float> row = random_values(64, seed, 0.1f);
  if (seed % 4 == 1) row[5] = std::nanf("");
  if (seed % 4 == 2) row[9] = INFINITY;
  if (seed % 5 == 3) std::fill(row.begin(), row.end(), seed % 2 == 0 ? 0.0f : -0.0f);
  if (seed % 7 == 3) row[0] = 1e-41f;
  return row;
}

void weights_quantize() {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const std::vector<float> row = row_with_specials(seed);
    uint32_t greatest = 0;
    for (const float x : row) greatest = std::max(greatest, cuda::magnitude_bits(x));
    const StoredRow int8 = reference_store(WeightFormat::int8, row);
    const float scale = cuda::int8_scale(greatest);
    check_same(&scale, &int8.scale, 1, "a scale");
    const StoredRow nf4 = reference_store(WeightFormat::nf4, row);
    for (size_t i = 0; i < row.size(); ++i) {
      const float integer = cuda::float_of_int8(cuda::int8_of(row[i], scale) << (i % 4 * 8), static_cast<int>(i % 4));
      check(integer == int8.values[i], "an integer");
      const uint32_t code = cuda::nf4_code(row[i], cuda::float_of_bits(greatest));
      const float value = cuda::nf4_value(static_cast<int>(code)) * cuda::float_of_bits(greatest);
      check_same(&value, &nf4.values[i], 1, "an NF4 weight");
    }
  }
}

void bytes_become_integers() {
  for (int integer = -128; integer < 128; ++integer) {
    for (int place = 0; place < 4; ++place) {
      const uint32_t word = (0x5a5a5a5au & ~(0xffu << (8 * place))) | (static_cast<uint32_t>(integer) & 0xffu) << (8 * place);
      const float got = cuda::float_of_int8(word, place);
      const auto expected = static_cast<float>(integer);
      check_same(&got, &expected, 1, "an integer");
    }
  }
}

void codes_are_looked_up() {
  std::mt19937 random(2);
  for (int i = 0; i < 20000; ++i) {
    uint8_t exponents[16];
    uint8_t bytes[32];
    for (int c = 0; c < 16; ++c) {
      exponents[c] = static_cast<uint8_t>(random());
      bytes[c] = exponents[c] >> 1;
      bytes[16 + c] = static_cast<uint8_t>(exponents[c] << 7);
    }
    cuda::Fixed4Tables tables;
    std::memcpy(&tables, bytes, sizeof tables);
    const auto sign_mantissas = static_cast<uint32_t>(random());
    const auto codes = static_cast<uint32_t>(random());
    const cuda::Bf16Pairs pairs = cuda::fixed4_lookup(tables, sign_mantissas, codes);
    const uint64_t four = static_cast<uint64_t>(pairs.second) << 32 | pairs.first;
    for (int w = 0; w < 4; ++w) {
      const uint32_t rest = sign_mantissas >> (8 * w) & 0xffu;
      const uint32_t expected = (rest & 0x80u) << 8 | uint32_t{exponents[codes >> (4 * w) & 15u]} << 7 | (rest & 0x7fu);
      check((four >> (16 * w) & 0xffffu) == expected, "a weight by its code");
    }
  }
}

// Rows in pieces give the same tiles as all rows at once, even where a piece begins within a tile.
void fixed4_tiles_grow() {
  constexpr int64_t kRows = 11;
  for (const int64_t columns : {1, 40, 205, 1000}) {
    std::vector<uint16_t> bits;
    for (const float x : random_values(static_cast<size_t>(kRows * columns), 5)) bits.push_back(reference_to_bf16(x));
    const uint8_t* const planes[1] = {reinterpret_cast<const uint8_t*>(bits.data())};
    std::vector<uint8_t> at_once(cuda::matrix_storage_bytes(WeightFormat::fixed4, kRows, columns));
    check(cuda::encode_fixed4_rows(at_once.data(), columns, 0, kRows, Split::none_bf16, planes), "not held");
    for (const int64_t piece : {1, 2, 3, 5}) {
      std::vector<uint8_t> grown(at_once.size());
      for (int64_t row = 0; row < kRows; row += piece) {
        const int64_t count = std::min(piece, kRows - row);
        const cuda::Fixed4Tiles place = cuda::fixed4_tiles(columns, row, count);
        const uint8_t* const from[1] = {planes[0] + row * columns * 2};
        check(cuda::encode_fixed4_rows(grown.data() + place.offset, columns, row, count, Split::none_bf16, from), "not held");
      }
      check(grown == at_once, "tiles in pieces differ");
    }
  }
}

}  // namespace

void add_cuda_layout_cases(std::vector<Case>& cases) {
  cases.push_back({"cuda layout: pieces cover every step once", pieces_cover_every_step_once});
  cases.push_back({"cuda layout: rows and vectors are aligned", rows_and_vectors_are_aligned});
  cases.push_back({"cuda layout: gated groups pair gate and up rows", gated_groups_pair_gate_and_up_rows});
  cases.push_back({"cuda values: halves convert", halves_convert});
  cases.push_back({"cuda values: floats round", floats_round});
  cases.push_back({"cuda values: weights quantize", weights_quantize});
  cases.push_back({"cuda values: bytes become integers", bytes_become_integers});
  cases.push_back({"cuda values: fixed4 codes are looked up", codes_are_looked_up});
  cases.push_back({"cuda values: fixed4 tiles grow", fixed4_tiles_grow});
}

}  // namespace odmoe::test
