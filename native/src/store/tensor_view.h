// Reads a tensor that is a view of a stored matrix: picks rows and columns, transposes blocks, decodes values.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "odmoe/store.h"
#include "matrix_reader.h"

namespace odmoe {

// Most bytes of a block that is transposed: it is held in memory completely.
inline constexpr int64_t kLargestTransposedBlock = int64_t{1} << 30;

// Sizes that follow from a view's sizes and its tensor's.
struct ViewShape {
  int64_t blocks = 0;
  int64_t block_rows = 0;     // stored rows of a block
  int64_t block_columns = 0;  // columns that are picked from each row
};

// Throws PACK_CORRUPT or MODEL_CORRUPT for a view that is not within its matrix or does not make up the tensor, INTERNAL for a kind
// of view that no model family has.
ViewShape check_view(const TensorSource& source);
// Bytes of one plane of the stored matrix, whose form is planes.
uint64_t viewed_plane_bytes(const TensorView& view, int plane);

// Reads from the first row to the last. Throws the errors of TensorReader.
class ViewReader {
 public:
  explicit ViewReader(const TensorSource& source);

  // Reads the next rows, one behind another in each of the tensor's planes.
  void read_rows(int64_t rows, uint8_t* const* planes);
  uint64_t stored_bytes_read() const { return matrix_->read_bytes(); }

 private:
  int64_t stored_row(int64_t block, int64_t row) const { return view_.first_row + block * view_.step_rows + row; }
  void read_plain_rows(int64_t rows, uint8_t* const* planes);
  void read_transposed_rows(int64_t rows, uint8_t* out);
  void load_block(int64_t block);
  // Writes the picked columns of a stored row, which has been read, into each plane.
  void pick(int64_t row, uint8_t* const* planes);
  void pick_values(const uint8_t* from, uint8_t* out) const;
  void pick_floats(const uint8_t* const* stored, uint8_t* out);
  void decode_row(const uint8_t* const* stored);

  Split split_;
  int64_t columns_;
  TensorView view_;
  ViewShape shape_;
  std::unique_ptr<MatrixReader> matrix_;
  bool changes_;          // multiplies and adds
  bool decodes_;          // to FP32
  int64_t next_row_ = 0;  // the next row of the tensor
  int64_t block_ = -1;    // the block in block_values_
  std::vector<uint8_t> block_values_;
  std::vector<float> row_values_;
  std::vector<float> ordered_values_;
};

}  // namespace odmoe
