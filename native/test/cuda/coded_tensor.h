// A matrix's planes as a pack stores them, plain and coded, in staging memory.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "cuda_tests.h"
#include "odmoe/codec.h"

namespace odmoe::cuda_test {

// Staging memory that the destructor releases.
class Staging {
 public:
  Staging(std::shared_ptr<Backend> backend, const std::vector<uint8_t>& bytes, uint64_t offset = 0);
  ~Staging() { backend_->release_staging(buffer_); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  uint8_t* bytes() const { return static_cast<uint8_t*>(buffer_.data) + offset_; }
  void fill(uint8_t value);

 private:
  std::shared_ptr<Backend> backend_;
  DeviceBuffer buffer_;
  uint64_t offset_;
};

struct PlainTensor {
  Split split = Split::bf16_e8_sm8;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<std::vector<uint8_t>> planes;

  uint64_t row_bytes(int plane) const { return static_cast<uint64_t>(columns * plane_value_bytes(split, plane)); }
};

// A first plane like that of weights: a few values are nearly all of it. `wild`: with occasional blocks of noise, which are stored
// plain.
PlainTensor random_tensor(std::mt19937& random, Split split, int64_t rows, int64_t columns, bool wild = false);

// A plane that is coded in blocks of `block_rows` rows.
class CodedPlane {
 public:
  // Its stored bytes begin at `offset` from a fully aligned address.
  CodedPlane(std::shared_ptr<Backend> backend, const PlainTensor& tensor, int plane, CodecKind codec, int64_t block_rows,
             uint64_t offset = 0);
  // The blocks that contain these rows; they are valid during this object's lifetime, until the next call by the same thread.
  PlaneSource rows(int64_t first_row, int64_t rows, std::vector<CodedBlock>& blocks) const;
  uint8_t* stored() const { return staging_.bytes(); }
  // Overwrites bytes of the blocks with noise; their sizes stay.
  void damage(std::mt19937& random, int bytes);

 private:
  CodecKind codec_;
  int64_t block_rows_;
  uint64_t row_bytes_;
  std::vector<uint8_t> encoded_;
  Staging staging_;
  ChunkDecoder decoder_;
};

// Storage of a matrix in device memory, zeroed.
class StoredWeights {
 public:
  StoredWeights(std::shared_ptr<Backend> backend, WeightFormat format, int64_t rows, int64_t columns);
  ~StoredWeights() { backend_->release(matrix.storage); }
  StoredWeights(const StoredWeights&) = delete;
  StoredWeights& operator=(const StoredWeights&) = delete;
  std::vector<uint8_t> bytes() const;

  Matrix matrix;

 private:
  std::shared_ptr<Backend> backend_;
};

// Writes all rows of the tensor, from the matrix's row `first_row` on.
void write_plain(Backend& backend, Matrix& matrix, int64_t first_row, const PlainTensor& tensor);

}  // namespace odmoe::cuda_test
