// The stored matrix of a view, read by rows in any order: rows in the planes of its split, however the file holds them.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "odmoe/store.h"

namespace odmoe {

// Stored bytes that are read at once, unless a row is larger.
inline constexpr int64_t kBatchBytes = 1024 * 1024;

class MatrixReader {
 public:
  virtual ~MatrixReader() = default;
  // Stored rows [first, first + count); row_planes() then gives the start of each of them. Throws STORAGE_FAILED, PACK_CORRUPT,
  // MODEL_CORRUPT; also for an invalid quantized weight.
  virtual void read_rows(int64_t first, int64_t count) = 0;
  // The number of rows that are worth reading at once.
  virtual int64_t rows_at_once() const = 0;
  // `row` counts from the first of the rows read last.
  virtual void row_planes(int64_t row, const uint8_t** planes) const = 0;
  virtual uint64_t read_bytes() const = 0;
  // Value i of a row is of column order[i] of the matrix; empty: columns are in order. Known once rows have been read.
  virtual std::span<const uint16_t> column_order() const { return {}; }
};

// The matrix that a source is a view of, which has been checked. Throws the errors of TensorReader.
std::unique_ptr<MatrixReader> open_matrix_reader(const TensorSource& source);

// True for splits whose scales may stand for several rows of a stored matrix (TensorView::scale_block_rows).
constexpr bool shares_scales(Split split) { return split == Split::fp8 || split == Split::fp8_tile || split == Split::fp8_row; }

}  // namespace odmoe
