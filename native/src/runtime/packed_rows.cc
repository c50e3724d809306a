#include "packed_rows.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace odmoe {
namespace {

constexpr int64_t kPieceValues = 16'384;
// Backends store rows in tiles of this many rows, and a tile of which two pieces write parts is made twice.
constexpr int64_t kRowMultiple = 4;

}  // namespace

int64_t packed_piece_rows(int64_t columns) { return std::max<int64_t>(1, kPieceValues / (columns * kRowMultiple)) * kRowMultiple; }

uint64_t pack_scratch_bytes(const ExpertShape& shape) {
  const auto values = [](int64_t columns) { return packed_piece_rows(columns) * columns; };
  return float_bytes(std::max(values(shape.hidden_size), values(shape.glu.intermediate_size)));
}

bool pack_piece(Backend& backend, Matrix& to, const Matrix& from, int64_t first_row, float* values) {
  const int64_t rows = std::min(packed_piece_rows(from.columns), from.rows - first_row);
  std::vector<int32_t> numbers(static_cast<size_t>(rows));
  std::iota(numbers.begin(), numbers.end(), static_cast<int32_t>(first_row));
  backend.embed(values, from, numbers.data(), static_cast<int>(rows));
  const auto* const plane = reinterpret_cast<const uint8_t*>(values);
  return backend.write_rows(to, first_row, rows, Split::none_fp32, &plane);
}

}  // namespace odmoe
