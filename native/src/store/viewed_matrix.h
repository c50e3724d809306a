// The stored matrix of a view, read by rows in any order.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "odmoe/store.h"
#include "stored_chunk.h"

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
class ViewedMatrix {
 public:
  explicit ViewedMatrix(const TensorSource& source);

  // Stored rows [first, first + count); row_planes() then gives the start of each of them. Also throws for an invalid quantized
  // weight.
  void read_rows(int64_t first, int64_t count);
  // The number of rows that are worth reading at once.
  int64_t rows_at_once() const { return rows_at_once_; }
  // `row` counts from the first of the rows read last.
  void row_planes(int64_t row, const uint8_t** planes) const;
  uint64_t read_bytes() const;

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
