// Bit-sliced weights: the codes of a row, the weights of each reading, products straight from the slices, and damage.
#include <cmath>
#include <cstring>
#include <limits>

#include "native_tests.h"
#include "odmoe/slices.h"
#include "reference_arithmetic.h"

namespace odmoe::test {
namespace {

struct Pair {
  const char* name;
  Split split;
  WeightFormat format;
  int high;
  int low;
};
constexpr Pair kPairs[] = {{"(8,4)", Split::sliced84, WeightFormat::sliced84, 8, 4},
                           {"(6,3)", Split::sliced63, WeightFormat::sliced63, 6, 3},
                           {"(4,2)", Split::sliced42, WeightFormat::sliced42, 4, 2}};
constexpr SliceReading kReadings[] = {SliceReading::both, SliceReading::upper_centred, SliceReading::upper_amat};

// A group's codes by the definition, one value at a time.
struct ReferenceGroup {
  float scale = 0;
  int zero = 0;
  std::vector<int> codes;
};

ReferenceGroup reference_group(const std::vector<float>& weights, int high) {
  const auto most = static_cast<float>((1 << high) - 1);
  float lowest = 0;
  float highest = 0;
  for (const float w : weights) {
    lowest = w < lowest ? w : lowest;
    highest = w > highest ? w : highest;
  }
  const auto within = [&](float x) { return static_cast<int>(x < 0 ? 0 : x > most ? most : x); };
  ReferenceGroup group;
  group.scale = reference_of_half(reference_to_half((highest - lowest) / most));
  group.codes.resize(weights.size());
  if (group.scale == 0) return group;
  group.zero = within(std::rint(-lowest / group.scale));
  for (size_t i = 0; i < weights.size(); ++i) {
    group.codes[i] = within(std::rint(weights[i] / group.scale) + static_cast<float>(group.zero));
  }
  return group;
}

std::vector<ReferenceGroup> reference_groups(const float* row, int64_t columns, int high) {
  std::vector<ReferenceGroup> groups;
  for (int64_t first = 0; first < columns; first += 32) {
    groups.push_back(reference_group({row + first, row + std::min(columns, first + 32)}, high));
  }
  return groups;
}

// The weight of a code; doubles hold each step of this exactly.
float reference_weight(const ReferenceGroup& group, int code, const Pair& pair, SliceReading reading) {
  const int shift = pair.high - pair.low;
  const double step = 1 << shift;
  const double scale = group.scale;
  if (reading == SliceReading::both) return static_cast<float>(scale * (code - group.zero));
  if (reading == SliceReading::upper_amat) return static_cast<float>(scale * step * ((code >> shift) - (group.zero >> shift)));
  return static_cast<float>(scale * ((code >> shift) * step + (step - 1) / 2 - group.zero));
}

struct Slices {
  std::vector<uint8_t> upper;
  std::vector<uint8_t> lower;
};

Slices slice(const Pair& pair, const std::vector<float>& weights, int64_t rows, int64_t columns) {
  const auto upper_bytes = plane_row_bytes(pair.split, 0, columns);
  const auto lower_bytes = plane_row_bytes(pair.split, 1, columns);
  // The old contents of the memory must not matter.
  Slices slices{std::vector<uint8_t>(static_cast<size_t>(rows * upper_bytes), 0xee),
                std::vector<uint8_t>(static_cast<size_t>(rows * lower_bytes), 0xee)};
  for (int64_t r = 0; r < rows; ++r) {
    const char* const fault = slice_row(pair.split, weights.data() + r * columns, columns, slices.upper.data() + r * upper_bytes,
                                        slices.lower.data() + r * lower_bytes);
    check(fault == nullptr, fault == nullptr ? "" : fault);
  }
  return slices;
}

// Rows of usual weights, with groups that are all zero, positive, negative, tiny, and large.
std::vector<float> varied_weights(int64_t rows, int64_t columns, uint32_t seed) {
  auto weights = random_values(static_cast<size_t>(rows * columns), seed, 0.05f);
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto kind = (i / 32 * 2654435761u >> 16) % 11;
    if (kind == 0) weights[i] = i % 2 == 0 ? 0.0f : -0.0f;
    if (kind == 1) weights[i] = std::fabs(weights[i]);
    if (kind == 2) weights[i] = -std::fabs(weights[i]);
    if (kind == 3) weights[i] *= 1e-6f;
    if (kind == 4) weights[i] *= 1e5f;
    if (kind == 5) weights[i] = 0.25f;
    if (kind == 6) weights[i] *= 1e-12f;
  }
  return weights;
}

// The code of a column in its group, by the layout that odmoe/slices.h describes.
int stored_code(int bits, const uint8_t* group, int64_t column) {
  const auto bit = [&](int64_t byte, int64_t place) { return group[byte] >> place & 1; };
  int code = 0;
  for (int i = 0; i < bits; ++i) {
    if (bits == 4) code |= bit(column % 16, column / 16 * 4 + i) << i;
    if (bits != 4) code |= (i < 2 ? bit(column % 8, column / 8 * 2 + i) : bit(8 + column / 8, column % 8)) << i;
  }
  return code;
}

std::vector<int> stored_codes(const Pair& pair, const uint8_t* upper, const uint8_t* lower, int64_t columns) {
  std::vector<int> codes;
  for (int64_t i = 0; i < columns; ++i) {
    const int64_t at = i / 32 * slice_code_bytes(pair.low);
    codes.push_back(stored_code(pair.low, upper + at, i % 32) << (pair.high - pair.low) |
                    stored_code(pair.low, lower + at, i % 32));
  }
  return codes;
}

void codes_equal_the_definition(const Pair& pair) {
  for (const int64_t columns : {int64_t{1}, int64_t{31}, int64_t{32}, int64_t{33}, int64_t{64}, int64_t{205}, int64_t{1024}}) {
    const int64_t rows = 40;
    const auto weights = varied_weights(rows, columns, static_cast<uint32_t>(columns));
    const Slices slices = slice(pair, weights, rows, columns);
    for (int64_t r = 0; r < rows; ++r) {
      const uint8_t* const upper = slices.upper.data() + r * plane_row_bytes(pair.split, 0, columns);
      const uint8_t* const lower = slices.lower.data() + r * plane_row_bytes(pair.split, 1, columns);
      const auto groups = reference_groups(weights.data() + r * columns, columns, pair.high);
      const std::vector<int> codes = stored_codes(pair, upper, lower, columns);
      check(slices_fault(pair.split, upper, lower, columns) == nullptr, "sound slices are refused");
      for (const SliceReading reading : kReadings) {
        std::vector<float> values(static_cast<size_t>(columns));
        const bool both = reading == SliceReading::both;
        slices_to_floats(pair.split, reading, upper, both ? lower : nullptr, columns, values.data());
        std::vector<float> expected;
        for (int64_t i = 0; i < columns; ++i) {
          const ReferenceGroup& group = groups[static_cast<size_t>(i / 32)];
          const int code = group.codes[static_cast<size_t>(i % 32)];
          check(codes[static_cast<size_t>(i)] == code, "code of column " + std::to_string(i));
          expected.push_back(reference_weight(group, code, pair, reading));
        }
        check_same(values, expected, "weights of " + std::to_string(columns) + " columns");
      }
    }
  }
}

void has_the_bits_of_a_weight(const Pair& pair) {
  const int64_t columns = 4096;
  const auto bits = [&](int64_t bytes) { return static_cast<double>(bytes) * 8 / static_cast<double>(columns); };
  check(bits(plane_row_bytes(pair.split, 0, columns)) == pair.low + 0.75, "bits of an upper slice");
  check(bits(plane_row_bytes(pair.split, 1, columns)) == pair.high - pair.low, "bits of a lower slice");
}

void refuses_weights(const Pair& pair) {
  const auto fault_of = [&](int64_t at, float value) {
    std::vector<float> weights(70, 0.5f);
    weights[static_cast<size_t>(at)] = value;
    std::vector<uint8_t> upper(static_cast<size_t>(plane_row_bytes(pair.split, 0, 70)));
    std::vector<uint8_t> lower(static_cast<size_t>(plane_row_bytes(pair.split, 1, 70)));
    const char* const fault = slice_row(pair.split, weights.data(), 70, upper.data(), lower.data());
    return std::string(fault == nullptr ? "" : fault);
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const auto most = static_cast<float>((1 << pair.high) - 1);
  for (const int64_t at : {int64_t{0}, int64_t{40}, int64_t{69}}) {
    for (const float value : {infinity, -infinity, std::nanf("")}) {
      check(fault_of(at, value) == "a weight is not finite", "a weight that is not finite is sliced");
    }
    check(fault_of(at, 65504.0f * most).empty(), "the largest scale is refused");
    for (const float value : {65505.0f * most, -65505.0f * most, 3e38f, -3e38f}) {
      check(!fault_of(at, value).empty(), "a scale above the largest is taken");
    }
  }
}

void finds_damage(const Pair& pair) {
  const int64_t columns = 45;
  const auto weights = varied_weights(1, columns, 77);
  const Slices sound = slice(pair, weights, 1, columns);
  const int64_t codes = 2 * slice_code_bytes(pair.low);
  const auto fault_with = [&](bool in_upper, int64_t at, uint8_t value) {
    Slices damaged = sound;
    (in_upper ? damaged.upper : damaged.lower)[static_cast<size_t>(at)] = value;
    return slices_fault(pair.split, damaged.upper.data(), damaged.lower.data(), columns) != nullptr;
  };
  check(fault_with(true, codes + 1, 0x7c), "an infinite scale passes");
  check(fault_with(true, codes + 3, 0x80), "a negative scale passes");
  if (pair.high < 8)
    check(fault_with(true, codes + 4, static_cast<uint8_t>(1 << pair.high)), "a zero above the highest code passes");
  // Column 44 is the thirteenth of its group; byte 15 of four bits, and byte 7 of two, have a later column alone or in their upper bits.
  const int64_t last = slice_code_bytes(pair.low) + (pair.low == 4 ? 15 : 7);
  check(fault_with(true, last, 0xf0), "a code behind the last column of an upper slice passes");
  check(fault_with(false, last, 0xf0), "a code behind the last column of a lower slice passes");
}

struct SlicedMatrix {
  DeviceMatrix owner;
  DeviceBuffer lower;
  Backend& backend;
  SlicedMatrix(Backend& on, const Pair& pair, int64_t rows, int64_t columns)
      : owner(on, pair.format, rows, columns), lower(on.allocate(on.lower_slice_bytes(pair.format, rows, columns))), backend(on) {
    owner.matrix.lower = lower;
  }
  ~SlicedMatrix() { backend.release(lower); }
  SlicedMatrix(const SlicedMatrix&) = delete;
  SlicedMatrix& operator=(const SlicedMatrix&) = delete;
};

void write(Backend& backend, SlicedMatrix& to, const Pair& pair, const Slices& slices, int64_t piece, bool upper, bool lower) {
  Matrix& matrix = to.owner.matrix;
  for (int64_t row = 0; row < matrix.rows; row += piece) {
    const uint8_t* const planes[] = {upper ? slices.upper.data() + row * plane_row_bytes(pair.split, 0, matrix.columns) : nullptr,
                                     lower ? slices.lower.data() + row * plane_row_bytes(pair.split, 1, matrix.columns) : nullptr};
    check(backend.write_rows(matrix, row, std::min(piece, matrix.rows - row), pair.split, planes), "held");
  }
}

std::vector<float> product(Backend& backend, const Matrix& matrix, const std::vector<float>& x, int n) {
  DeviceFloats in(backend, x);
  DeviceFloats out(backend, static_cast<size_t>(n * matrix.rows));
  backend.matmul(out.data(), matrix.rows, matrix, in.data(), matrix.columns, n);
  return out.read();
}

std::vector<float> reference_product(const Pair& pair, SliceReading reading, const std::vector<float>& weights, int64_t rows,
                                     int64_t columns, const std::vector<float>& x, int n) {
  std::vector<float> out(static_cast<size_t>(n * rows));
  const int64_t padded = (columns + 31) / 32 * 32;
  for (int64_t r = 0; r < rows; ++r) {
    const auto groups = reference_groups(weights.data() + r * columns, columns, pair.high);
    std::vector<float> values;
    for (int64_t i = 0; i < padded; ++i) {
      const ReferenceGroup& group = groups[static_cast<size_t>(i / 32)];
      const int code = i < columns ? group.codes[static_cast<size_t>(i % 32)] : 0;
      values.push_back(reference_weight(group, code, pair, reading));
    }
    for (int i = 0; i < n; ++i) {
      std::vector<float> in(x.begin() + i * columns, x.begin() + (i + 1) * columns);
      in.resize(static_cast<size_t>(padded));
      out[static_cast<size_t>(i * rows + r)] = reference_dot(in, values);
    }
  }
  return out;
}

void multiplies(const std::string& set, const Pair& pair) {
  const int most = 17;
  for (const int threads : {1, 3}) {
    auto backend = open_backend(set, threads);
    for (const auto& [rows, columns] :
         {std::pair<int64_t, int64_t>{1, 1}, {3, 31}, {4, 32}, {5, 33}, {70, 97}, {6, 2081}, {39, 1137}}) {
      const auto weights = varied_weights(rows, columns, 5);
      const Slices slices = slice(pair, weights, rows, columns);
      SlicedMatrix matrix(*backend, pair, rows, columns);
      write(*backend, matrix, pair, slices, 7, true, false);
      const auto x = random_values(static_cast<size_t>(most * columns), 2);
      for (const SliceReading reading : {SliceReading::upper_centred, SliceReading::upper_amat, SliceReading::both}) {
        // The lower slice comes to a matrix that is in use.
        if (reading == SliceReading::both) write(*backend, matrix, pair, slices, 5, false, true);
        matrix.owner.matrix.reading = reading;
        const auto expected = reference_product(pair, reading, weights, rows, columns, x, most);
        for (int n = 1; n <= most; ++n) {
          check_same(product(*backend, matrix.owner.matrix, {x.begin(), x.begin() + n * columns}, n),
                     {expected.begin(), expected.begin() + n * rows},
                     std::string(pair.name) + " " + std::to_string(rows) + "x" + std::to_string(columns) +
                         " n=" + std::to_string(n) + " reading " + std::to_string(static_cast<int>(reading)));
        }
      }
    }
  }
}

void stores_the_same_bytes(const std::string& set, const Pair& pair) {
  auto plain = open_backend("scalar");
  auto backend = open_backend(set);
  const auto weights = varied_weights(26, 205, 6);
  const Slices slices = slice(pair, weights, 26, 205);
  SlicedMatrix whole(*plain, pair, 26, 205);
  SlicedMatrix pieces(*backend, pair, 26, 205);
  write(*plain, whole, pair, slices, 26, true, true);
  write(*backend, pieces, pair, slice(pair, varied_weights(26, 205, 9), 26, 205), 5, true, true);
  write(*backend, pieces, pair, slices, 3, false, true);
  write(*backend, pieces, pair, slices, 1, true, false);
  const auto same = [](const DeviceBuffer& a, const DeviceBuffer& b) {
    return a.bytes == b.bytes && std::memcmp(a.data, b.data, a.bytes) == 0;
  };
  check(same(whole.owner.matrix.storage, pieces.owner.matrix.storage), "upper slices");
  check(same(whole.lower, pieces.lower), "lower slices");
  const std::vector<float> values(205);
  const uint8_t* const planes[] = {reinterpret_cast<const uint8_t*>(values.data()),
                                   reinterpret_cast<const uint8_t*>(values.data())};
  for (const Split other : {Split::none_bf16, Split::none_fp32, Split::mxfp4, Split::fp8, Split::sliced84, Split::sliced42}) {
    if (other == pair.split) continue;
    check(!backend->write_rows(pieces.owner.matrix, 0, 1, other, planes), "weights that were not sliced so are held");
  }
}

void takes_the_bytes_that_are_allowed(const std::string& set) {
  auto backend = open_backend(set);
  const double weights = 512.0 * 1024.0;
  const auto upper = static_cast<double>(backend->matrix_bytes(WeightFormat::sliced84, 512, 1024));
  const auto lower = static_cast<double>(backend->lower_slice_bytes(WeightFormat::sliced84, 512, 1024));
  check(upper * 8 / weights <= 4.80, "an upper slice takes more than 4.80 bits a weight");
  check((upper + lower) * 8 / weights <= 8.85, "both slices take more than 8.85 bits a weight");
}

}  // namespace

void add_sliced_weight_cases(std::vector<Case>& cases) {
  for (const Pair& pair : kPairs) {
    const std::string name = std::string("sliced weights ") + pair.name + ": ";
    cases.push_back({name + "codes and weights equal the definition", [=] { codes_equal_the_definition(pair); }});
    cases.push_back({name + "a plane has as many bits a weight as it says", [=] { has_the_bits_of_a_weight(pair); }});
    cases.push_back({name + "weights that cannot be sliced are refused", [=] { refuses_weights(pair); }});
    cases.push_back({name + "damage is found", [=] { finds_damage(pair); }});
    for (const std::string& set : instruction_sets()) {
      cases.push_back({name + set + " multiplies", [=] { multiplies(set, pair); }});
      cases.push_back({name + set + " stores the same bytes", [=] { stores_the_same_bytes(set, pair); }});
    }
  }
  for (const std::string& set : instruction_sets()) {
    cases.push_back(
        {"sliced weights " + set + ": take the bytes that are allowed", [=] { takes_the_bytes_that_are_allowed(set); }});
  }
}

}  // namespace odmoe::test
