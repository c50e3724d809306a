#include <algorithm>
#include <string>

#include "odmoe/error.h"
#include "repacked_matrix.h"
#include "stored_chunk.h"
#include "tensor_view.h"

namespace odmoe {
namespace {

constexpr int64_t kLargestSize = INT32_MAX;

[[noreturn]] void refuse(const TensorSource& source, const std::string& what) {
  if (!source.chunks.empty()) throw_corrupt(source.chunks.front(), what);
  throw Error(ErrorCode::model_corrupt, what + "; download the checkpoint again");
}

bool is_plain(Split split) { return split == Split::none_bf16 || split == Split::none_fp16 || split == Split::none_fp32; }

// Limits sizes, so that no product of two of them overflows.
void check_sizes(const TensorSource& source) {
  const TensorView& view = *source.view;
  const auto [least, most] = std::minmax({source.rows, source.columns, view.stored_rows, view.stored_columns, view.scale_block_rows,
                                          view.block_rows, view.step_columns});
  const auto [least_place, most_place] = std::minmax({view.first_row, view.step_rows, view.first_column});
  if (least >= 1 && least_place >= 0 && std::max(most, most_place) <= kLargestSize) return;
  refuse(source, "a tensor is a view with sizes that no matrix has");
}

void check_splits(const TensorSource& source) {
  const TensorView& view = *source.view;
  const bool stored = is_plain(view.stored_split) || (is_quantized(view.stored_split) && slice_bits(view.stored_split) == 0);
  const bool decoded = source.split == Split::none_fp32;
  const bool changed = view.multiply != 1.0f || view.add != 0.0f;
  if (stored && (decoded || (source.split == view.stored_split && !changed))) return;
  throw Error(ErrorCode::internal, "a view can keep how values are stored, or make FP32 of them; this one does neither");
}

int64_t block_columns(const TensorSource& source) {
  const TensorView& view = *source.view;
  if (view.first_column >= view.stored_columns) refuse(source, "a view begins behind the last column of its matrix");
  const int64_t available = (view.stored_columns - view.first_column + view.step_columns - 1) / view.step_columns;
  if (view.transposed) return std::min(source.rows, available);
  if (source.columns > available) {
    refuse(source,
           "a view has " + std::to_string(source.columns) + " columns, of which its matrix has " + std::to_string(available));
  }
  return source.columns;
}

// True if the split's rows can be cut between columns: what belongs to columns stands in their order in each plane.
bool has_columns_to_cut(Split split) {
  return split == Split::mxfp4 || split == Split::fp8 || split == Split::fp8_tile || split == Split::mxfp8 ||
         block_shape(split).columns != 0;
}

bool cuts_columns(const TensorSource& source) {
  const TensorView& view = *source.view;
  if (view.transposed || view.step_columns != 1) return true;
  const bool whole = view.first_column == 0 && source.columns == view.stored_columns;
  if (whole) return false;
  if (!has_columns_to_cut(source.split)) return true;
  const int64_t together = columns_together(source.split);
  const bool ragged = source.columns % together != 0 && source.split != Split::fp8 && source.split != Split::fp8_tile;
  return view.first_column % together != 0 || ragged;
}

// Rows of a tile have equal scales, and a piece of the order of the columns belongs to each row.
bool cuts_rows(const TensorSource& source) {
  const TensorView& view = *source.view;
  if (is_grouped(source.split) && grouped_codes(source.split).order_bytes > 0) {
    return view.first_row != 0 || view.block_rows != view.stored_rows || source.rows != view.stored_rows;
  }
  if (source.split != Split::fp8_tile) return false;
  const bool several = source.rows > view.block_rows;
  const bool shared = view.scale_block_rows % kTileScaleRows == 0 || view.scale_block_rows >= view.stored_rows;
  return !shared || view.first_row % kTileScaleRows != 0 ||
         (several && (view.block_rows % kTileScaleRows != 0 || view.step_rows % kTileScaleRows != 0));
}

// Checks that the view keeps together what shares a scale.
void check_scale_blocks(const TensorSource& source) {
  const TensorView& view = *source.view;
  if (view.stored_split == Split::mxfp4 && view.stored_columns % kMxfp4Block != 0) {
    refuse(source, "an MXFP4 matrix has " + std::to_string(view.stored_columns) + " columns, no multiple of 32");
  }
  check_form(source);
  if (!is_quantized(source.split)) return;
  if (cuts_columns(source)) refuse(source, "a view cuts columns apart that share a scale");
  if (cuts_rows(source)) refuse(source, "a view cuts rows apart that share a scale or the order of columns");
}

}  // namespace

ViewShape check_view(const TensorSource& source) {
  const TensorView& view = *source.view;
  check_sizes(source);
  check_splits(source);
  check_scale_blocks(source);
  ViewShape shape;
  shape.block_rows = view.block_rows;
  shape.block_columns = block_columns(source);
  const int64_t tensor_rows = view.transposed ? shape.block_columns : shape.block_rows;  // rows of one block
  shape.blocks = source.rows / tensor_rows;
  if (source.rows % tensor_rows != 0 || (view.transposed && source.columns != shape.block_rows)) {
    refuse(source, "a view's blocks do not make up its tensor of " + std::to_string(source.rows) + " x " +
                       std::to_string(source.columns) + " values");
  }
  const int64_t end_row = view.first_row + (shape.blocks - 1) * view.step_rows + shape.block_rows;
  if (end_row > view.stored_rows) {
    refuse(source, "a view reaches to row " + std::to_string(end_row) + " of a matrix of " + std::to_string(view.stored_rows));
  }
  const int64_t value = source.split == Split::none_fp32 ? 4 : 2;
  if (view.transposed && shape.block_rows * shape.block_columns > kLargestTransposedBlock / value) {
    refuse(source, "a view transposes more than a gibibyte at once");
  }
  return shape;
}

uint64_t viewed_plane_bytes(const TensorView& view, int plane) {
  const bool shared = shares_scales(view.stored_split) && plane == 1;
  const int64_t rows = shared ? (view.stored_rows + view.scale_block_rows - 1) / view.scale_block_rows : view.stored_rows;
  return static_cast<uint64_t>(rows) * static_cast<uint64_t>(plane_row_bytes(view.stored_split, plane, view.stored_columns));
}

}  // namespace odmoe
