// Weights outside the device: where their bytes lie, how they are cut into planes, and how they are read row by row.
// Nothing here knows a device; staging is host memory that the caller owns.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "odmoe/backend.h"
#include "odmoe/codec.h"

namespace odmoe {

// Where a stretch of bytes of one plane lies. The chunks of a plane follow one another in the plane.
struct ChunkLocation {
  int plane = 0;
  std::string path;
  uint64_t offset_bytes = 0;
  uint64_t stored_bytes = 0;
  uint64_t plain_bytes = 0;
  CodecKind codec = CodecKind::raw;
  std::optional<uint32_t> crc32c;  // of the stored bytes; absent: not checked (a checkpoint has none)
};

// A tensor as a view of a stored matrix (shared/model/tensor-source.ts). Block b has the stored rows [first_row + b * step_rows, +
// block_rows) and of these the columns first_column, first_column + step_columns and so on; the blocks stand one below another,
// `transposed`: each is transposed by itself first, and has all columns from first_column on where there are several.
struct TensorView {
  // The chunks hold this matrix, of which a row of fp8 scales stands for scale_block_rows rows.
  int64_t stored_rows = 0;
  int64_t stored_columns = 0;
  Split stored_split = Split::none_bf16;  // another than the tensor's: the values are made FP32, and the tensor is none_fp32
  int64_t scale_block_rows = 1;
  int64_t first_row = 0;
  int64_t block_rows = 0;
  int64_t step_rows = 0;
  int64_t first_column = 0;
  int64_t step_columns = 1;
  bool transposed = false;
  // Each value becomes fp32(fp32(value * multiply) + add). 1 and 0 for all that is not none_fp32.
  float multiply = 1.0f;
  float add = 0.0f;
};

// rows x columns values, row-major within each plane. A vector has one row.
struct TensorSource {
  int64_t rows = 0;
  int64_t columns = 0;
  Split split = Split::none_bf16;
  std::vector<ChunkLocation> chunks;
  std::optional<TensorView> view;  // absent: the chunks hold the tensor itself
};

// Throws PACK_CORRUPT or, for a checkpoint's, MODEL_CORRUPT unless the chunks make up the tensor, by what is said of their sizes.
void check_chunks(const TensorSource& source);

// CRC-32C (Castagnoli). `seed` is the CRC of what came before, 0 at the start.
uint32_t crc32c(uint32_t seed, const uint8_t* bytes, uint64_t count);
// The CRC of what has crc_a followed by `length_b` bytes that have crc_b.
uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b);

// Cuts row-major values into planes. Throws INTERNAL when `bytes` is not a whole number of values, and for a quantized split.
std::vector<std::vector<uint8_t>> split_planes(const uint8_t* values, uint64_t bytes, Split split);
// Row-major values put together from their planes, each plane holding `count` values; `out` takes count * value_bytes(split).
void join_planes(uint8_t* out, const uint8_t* const* planes, Split split, uint64_t count);
// A row of `count` values put together from its planes, as FP32 (exact but for fp8, whose weights are rounded once).
void planes_to_floats(float* out, const uint8_t* const* planes, Split split, int64_t count);

// Staging that `rows` rows of `columns` values take: the planes one after another, each from a 64-byte boundary.
uint64_t staging_bytes(Split split, int64_t rows, int64_t columns);

class PlaneCursor;
class ViewReader;

// Reads a tensor from its first row to its last. Checks each chunk's checksum when its last byte has been read.
// Throws STORAGE_FAILED (the operating system refused), PACK_CORRUPT or, for chunks without checksum, MODEL_CORRUPT
// (truncated file, wrong checksum, sizes that contradict each other, a view out of its matrix, quantized weights that are none).
class TensorReader {
 public:
  explicit TensorReader(const TensorSource& source);
  ~TensorReader();
  TensorReader(const TensorReader&) = delete;
  TensorReader& operator=(const TensorReader&) = delete;

  // The next `rows` rows into staging (staging_bytes() of them); planes[i] then points at plane i's part.
  void read_rows(int64_t rows, uint8_t* staging, const uint8_t** planes);
  int64_t rows_left() const { return rows_left_; }
  // Bytes read from storage so far.
  uint64_t stored_bytes_read() const;

 private:
  Split split_;
  int64_t columns_;
  int64_t rows_left_;
  ChunkLocation first_chunk_;  // for errors
  std::vector<std::unique_ptr<PlaneCursor>> planes_;
  std::unique_ptr<ViewReader> view_;  // in place of the planes
};

}  // namespace odmoe
