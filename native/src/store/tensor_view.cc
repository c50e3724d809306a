#include "tensor_view.h"

#include <algorithm>
#include <cstring>

namespace odmoe {
namespace {

// Copies every step-th value.
template <typename Value>
void pick_every(const uint8_t* from, int64_t step, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; i++)
    std::memcpy(out + i * int64_t{sizeof(Value)}, from + i * step * int64_t{sizeof(Value)}, sizeof(Value));
}

// out[column][row] = in[row][first_column + column], for `columns` columns; a row of `in` has in_columns values, one of `out` rows.
template <typename Value>
void transpose(const uint8_t* in, int64_t in_columns, int64_t rows, int64_t first_column, int64_t columns, uint8_t* out) {
  for (int64_t row = 0; row < rows; row++) {
    const uint8_t* const from = in + (row * in_columns + first_column) * int64_t{sizeof(Value)};
    for (int64_t column = 0; column < columns; column++) {
      std::memcpy(out + (column * rows + row) * int64_t{sizeof(Value)}, from + column * int64_t{sizeof(Value)}, sizeof(Value));
    }
  }
}

}  // namespace

ViewReader::ViewReader(const TensorSource& source)
    : split_(source.split),
      columns_(source.columns),
      view_(*source.view),
      shape_(check_view(source)),
      matrix_(open_matrix_reader(source)),
      changes_(view_.multiply != 1.0f || view_.add != 0.0f),
      decodes_(split_ != view_.stored_split || changes_) {}

void ViewReader::read_rows(int64_t rows, uint8_t* const* planes) {
  if (view_.transposed) {
    read_transposed_rows(rows, planes[0]);
  } else {
    read_plain_rows(rows, planes);
  }
}

void ViewReader::read_plain_rows(int64_t rows, uint8_t* const* planes) {
  uint8_t* out[kMaxPlanes] = {};
  std::copy_n(planes, plane_count(split_), out);
  while (rows > 0) {
    const int64_t within = next_row_ % shape_.block_rows;
    const int64_t count = std::min({rows, shape_.block_rows - within, matrix_->rows_at_once()});
    matrix_->read_rows(stored_row(next_row_ / shape_.block_rows, within), count);
    for (int64_t row = 0; row < count; row++) {
      pick(row, out);
      for (int plane = 0; plane < plane_count(split_); plane++) out[plane] += plane_row_bytes(split_, plane, columns_);
    }
    next_row_ += count;
    rows -= count;
  }
}

void ViewReader::load_block(int64_t block) {
  if (block == block_) return;
  const int64_t row_bytes = plane_row_bytes(split_, 0, shape_.block_columns);
  block_values_.resize(static_cast<size_t>(shape_.block_rows * row_bytes));
  for (int64_t row = 0; row < shape_.block_rows;) {
    const int64_t count = std::min(shape_.block_rows - row, matrix_->rows_at_once());
    matrix_->read_rows(stored_row(block, row), count);
    for (int64_t i = 0; i < count; i++, row++) {
      uint8_t* const to = block_values_.data() + row * row_bytes;
      pick(i, &to);
    }
  }
  block_ = block;
}

void ViewReader::read_transposed_rows(int64_t rows, uint8_t* out) {
  while (rows > 0) {
    const int64_t within = next_row_ % shape_.block_columns;
    const int64_t count = std::min(rows, shape_.block_columns - within);
    load_block(next_row_ / shape_.block_columns);
    const auto turn = value_bytes(split_) == 4 ? transpose<uint32_t> : transpose<uint16_t>;
    turn(block_values_.data(), shape_.block_columns, shape_.block_rows, within, count, out);
    out += count * plane_row_bytes(split_, 0, columns_);
    next_row_ += count;
    rows -= count;
  }
}

void ViewReader::pick(int64_t row, uint8_t* const* planes) {
  const uint8_t* stored[kMaxPlanes] = {};
  matrix_->row_planes(row, stored);
  if (decodes_) return pick_floats(stored, planes[0]);
  if (!is_quantized(split_)) return pick_values(stored[0], planes[0]);
  for (int plane = 0; plane < plane_count(split_); plane++) {
    // Some planes have bytes for the row as a whole; such rows are taken whole.
    const int64_t skipped = view_.first_column == 0 ? 0 : plane_row_bytes(split_, plane, view_.first_column);
    std::memcpy(planes[plane], stored[plane] + skipped, static_cast<size_t>(plane_row_bytes(split_, plane, columns_)));
  }
}

void ViewReader::pick_values(const uint8_t* from, uint8_t* out) const {
  from += view_.first_column * value_bytes(split_);
  if (view_.step_columns == 1) {
    std::memcpy(out, from, static_cast<size_t>(plane_row_bytes(split_, 0, shape_.block_columns)));
  } else if (value_bytes(split_) == 4) {
    pick_every<uint32_t>(from, view_.step_columns, shape_.block_columns, out);
  } else {
    pick_every<uint16_t>(from, view_.step_columns, shape_.block_columns, out);
  }
}

// Decodes a stored row, and puts its values into the order of the matrix's columns.
void ViewReader::decode_row(const uint8_t* const* stored) {
  row_values_.resize(static_cast<size_t>(view_.stored_columns));
  planes_to_floats(row_values_.data(), stored, view_.stored_split, view_.stored_columns);
  const std::span<const uint16_t> order = matrix_->column_order();
  if (order.empty()) return;
  ordered_values_.resize(row_values_.size());
  for (size_t i = 0; i < order.size(); i++) ordered_values_[order[i]] = row_values_[i];
  row_values_.swap(ordered_values_);
}

void ViewReader::pick_floats(const uint8_t* const* stored, uint8_t* out) {
  decode_row(stored);
  for (int64_t i = 0; i < shape_.block_columns; i++) {
    const float stored_value = row_values_[static_cast<size_t>(view_.first_column + i * view_.step_columns)];
    const float value = changes_ ? stored_value * view_.multiply + view_.add : stored_value;
    std::memcpy(out + i * 4, &value, sizeof value);
  }
}

}  // namespace odmoe
