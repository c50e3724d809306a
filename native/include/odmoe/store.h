// Weights outside the device: the places of their bytes, their split into planes, and readers that read them row by row. Nothing
// here depends on a device; staging is host memory that the caller owns.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "odmoe/backend.h"
#include "odmoe/codec.h"

namespace odmoe {

// The place of a chunk of one plane. The chunks of a plane follow one another in the plane.
struct ChunkLocation {
  int plane = 0;
  std::string path;
  uint64_t offset_bytes = 0;
  uint64_t stored_bytes = 0;
  uint64_t plain_bytes = 0;
  CodecKind codec = CodecKind::raw;
  std::optional<uint32_t> crc32c;  // of the stored bytes; absent: not checked (checkpoints have no checksums)
};

// How a file holds the matrix of a view (shared/model/tensor-source.ts, StoredForm). planes: in the planes of its split. The planes of
// the other forms have roles: 0 codes, 1 scales, 2 zero points or an NVFP4 matrix's scales, 3 the group of each column (g_idx).
//  gguf_mxfp4, gguf_nvfp4: GGUF's blocks; plane 1 of gguf_nvfp4 has FP32 scales, each for as many rows as the others, or is absent
//  nvfp4: codes and E4M3 scales as in the split; FP32 scales as for gguf_nvfp4 in plane 2
//  fp8_bf16, fp8_fp16, fp8_e8m0: the planes of an FP8 split, with scales of another type
//  int8: whole numbers with a sign, and a scale for scale_block_rows rows
//  pack_quantized: compressed-tensors; zero points are packed down the rows
//  gptq, gptq_v1: words that are packed down the columns, [columns, rows]; v1 stores zero points less 1
//  awq: words that are packed along the rows, [columns, rows], in an order of their own
enum class StoredForm : uint8_t {
  planes,
  gguf_mxfp4,
  gguf_nvfp4,
  nvfp4,
  fp8_bf16,
  fp8_fp16,
  fp8_e8m0,
  int8,
  pack_quantized,
  gptq,
  gptq_v1,
  awq
};

// Most planes of any form.
inline constexpr int kMaxStoredPlanes = 4;

// A tensor as a view of a stored matrix (shared/model/tensor-source.ts). Block b has the stored rows [first_row + b * step_rows, +
// block_rows) and of these the columns first_column, first_column + step_columns and so on; the blocks stand one below another.
// `transposed`: each block is transposed by itself first; where there are several blocks, each has all columns from first_column
// on.
struct TensorView {
  // The chunks hold this matrix; of FP8 and INT8, one row of scales applies to scale_block_rows rows.
  int64_t stored_rows = 0;
  int64_t stored_columns = 0;
  Split stored_split = Split::none_bf16;  // if it differs from the tensor's, values become FP32 and the tensor is none_fp32
  StoredForm form = StoredForm::planes;
  int64_t scale_block_rows = 1;
  int64_t first_row = 0;
  int64_t block_rows = 0;
  int64_t step_rows = 0;
  int64_t first_column = 0;
  int64_t step_columns = 1;
  bool transposed = false;
  // Each value becomes fp32(fp32(value * multiply) + add). 1 and 0 for every tensor that is not none_fp32.
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

// Throws PACK_CORRUPT or, for a checkpoint's, MODEL_CORRUPT unless the chunks' declared sizes make up the tensor.
void check_chunks(const TensorSource& source);

// CRC-32C (Castagnoli). `seed` is the CRC of the bytes before, 0 at the start.
uint32_t crc32c(uint32_t seed, const uint8_t* bytes, uint64_t count);
// The CRC of bytes with crc_a followed by `length_b` bytes with crc_b.
uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b);

// Cuts row-major values into planes. Throws INTERNAL when `bytes` is not a whole number of values, and for a quantized split.
std::vector<std::vector<uint8_t>> split_planes(const uint8_t* values, uint64_t bytes, Split split);
// Joins planes to row-major values; each plane holds `count` values; `out` has room for count * value_bytes(split).
void join_planes(uint8_t* out, const uint8_t* const* planes, Split split, uint64_t count);
// Joins the planes of a row of `count` values to FP32 (exact except for fp8, whose weights are rounded once).
void planes_to_floats(float* out, const uint8_t* const* planes, Split split, int64_t count);

// Bytes of staging for `rows` rows of `columns` values: the planes one after another, each at a 64-byte boundary.
uint64_t staging_bytes(Split split, int64_t rows, int64_t columns);

class PlaneCursor;
class ViewReader;

// Reads a tensor from its first row to its last. Checks each chunk's checksum when its last byte has been read.
// Throws STORAGE_FAILED (an error of the operating system), PACK_CORRUPT or, for chunks without checksum, MODEL_CORRUPT (truncated
// file, wrong checksum, sizes that contradict each other, a view beyond its matrix, invalid quantized weights).
class TensorReader {
 public:
  // `planes`: the first ones, which are read; not for a view.
  explicit TensorReader(const TensorSource& source, int planes = kMaxPlanes);
  ~TensorReader();
  TensorReader(const TensorReader&) = delete;
  TensorReader& operator=(const TensorReader&) = delete;

  // Reads the next `rows` rows into staging (of staging_bytes() bytes); planes[i] then points to the part of plane i,
  // or is null where the plane is not read.
  void read_rows(int64_t rows, uint8_t* staging, const uint8_t** planes);
  int64_t rows_left() const { return rows_left_; }
  // Bytes read from storage so far.
  uint64_t stored_bytes_read() const;

 private:
  Split split_;
  int64_t columns_;
  int64_t rows_left_;
  ChunkLocation first_chunk_;  // for error messages
  std::vector<std::unique_ptr<PlaneCursor>> planes_;
  std::unique_ptr<ViewReader> view_;  // used in place of the planes
};

}  // namespace odmoe
