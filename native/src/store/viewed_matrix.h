// A stored matrix whose planes are those of its split.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "odmoe/store.h"
#include "stored_chunk.h"
#include "matrix_reader.h"

namespace odmoe {

// One plane: raw chunks that follow one another.
class ViewedPlane {
 public:
  // The chunks of that plane. Throws the errors of TensorReader: a chunk with a checksum is read and checked here, because rows may
  // be read in part later. Throws INTERNAL for coded chunks.
  ViewedPlane(const std::vector<ChunkLocation>& chunks, int plane);

  // Throws STORAGE_FAILED, PACK_CORRUPT, MODEL_CORRUPT.
  void read(uint64_t offset, uint8_t* out, uint64_t count);
  uint64_t read_bytes() const { return read_bytes_; }
  uint64_t plain_bytes() const { return parts_.empty() ? 0 : parts_.back().begin + parts_.back().chunk.plain_bytes; }

 private:
  struct Part {
    ChunkLocation chunk;
    uint64_t begin = 0;  // in the plane
  };

  File& open(const ChunkLocation& chunk);
  void check_whole(const ChunkLocation& chunk);

  std::vector<Part> parts_;
  std::unique_ptr<File> file_;
  uint64_t read_bytes_ = 0;
};

// All its planes.
class ViewedMatrix : public MatrixReader {
 public:
  explicit ViewedMatrix(const TensorSource& source);

  void read_rows(int64_t first, int64_t count) override;
  int64_t rows_at_once() const override { return rows_at_once_; }
  void row_planes(int64_t row, const uint8_t** planes) const override;
  uint64_t read_bytes() const override;

 private:
  int64_t scale_row(int64_t row) const { return row / scale_block_rows_; }

  Split split_;
  int64_t columns_;
  int64_t scale_block_rows_;
  int64_t rows_at_once_;
  ChunkLocation first_chunk_;  // for errors
  std::vector<ViewedPlane> planes_;
  std::vector<uint8_t> buffers_[kMaxPlanes];
  int64_t first_ = 0;
};

}  // namespace odmoe
