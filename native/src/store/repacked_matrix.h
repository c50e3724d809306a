// A stored matrix of another form than the planes of its split: moves bits, so that its rows are in those planes. No code and no scale
// changes its value; scales of FP8 splits become FP32, which holds them exactly.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "matrix_reader.h"
#include "viewed_matrix.h"

namespace odmoe {

// Most bytes of a plane of a form that is read whole, because a row has bits everywhere in it.
inline constexpr int64_t kLargestWholePlane = int64_t{1} << 30;

// True for forms whose words belong to columns of the matrix.
constexpr bool is_transposed(StoredForm form) {
  return form == StoredForm::gptq || form == StoredForm::gptq_v1 || form == StoredForm::awq;
}

// Throws MODEL_CORRUPT unless the view's split and sizes are those of its form.
void check_form(const TensorSource& source);
// Throws MODEL_CORRUPT unless the chunks of each plane have the bytes that the form has.
void check_form_bytes(const TensorSource& source);

class RepackedMatrix : public MatrixReader {
 public:
  explicit RepackedMatrix(const TensorSource& source);

  void read_rows(int64_t first, int64_t count) override;
  int64_t rows_at_once() const override { return rows_at_once_; }
  void row_planes(int64_t row, const uint8_t** planes) const override;
  uint64_t read_bytes() const override;
  std::span<const uint16_t> column_order() const override { return order_; }

 protected:
  // Fills rows_of(0) and rows_of(1) of `count` stored rows from `first` on.
  virtual void repack(int64_t first, int64_t count) = 0;
  // Rows of a plane of the file, whose rows have row_bytes bytes.
  const uint8_t* read(int plane, int64_t row_bytes, int64_t first, int64_t count);
  std::vector<uint8_t> read_whole(int plane);
  uint64_t plane_bytes(int plane) const { return planes_[static_cast<size_t>(plane)].plain_bytes(); }
  uint8_t* out(int plane, int64_t row) { return rows_[plane].data() + row * plane_row_bytes(split_, plane, columns_); }
  [[noreturn]] void refuse(const std::string& what) const;

  TensorView view_;
  Split split_;
  int64_t rows_total_;
  int64_t columns_;
  std::vector<uint16_t> order_;

 private:
  int64_t rows_at_once_;
  ChunkLocation first_chunk_;  // for errors
  std::vector<ViewedPlane> planes_;
  std::vector<uint8_t> raw_[kMaxStoredPlanes];
  std::vector<uint8_t> rows_[kMaxPlanes];
};

// INT4 and INT8 of compressed-tensors, GPTQ and AWQ.
std::unique_ptr<MatrixReader> open_grouped_matrix(const TensorSource& source);

}  // namespace odmoe
