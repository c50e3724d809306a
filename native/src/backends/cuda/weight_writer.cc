#include "weight_writer.h"

#include <algorithm>
#include <array>
#include <vector>

#include "cuda_error.h"
#include "fixed4_rows.h"
#include "kernels.h"
#include "odmoe/error.h"
#include "plane_transfer.h"
#include "weight_layout.h"

namespace odmoe::cuda {
namespace {

using Transfers = std::array<PlaneTransfer, kMaxPlanes>;

uint64_t scratch_bytes(const Transfers& transfers, int planes, int64_t rows) {
  uint64_t bytes = 0;
  for (int plane = 0; plane < planes; ++plane) bytes += transfers[static_cast<size_t>(plane)].scratch_bytes(rows);
  return bytes;
}

bool is_value_format(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16:
    case WeightFormat::fp16:
    case WeightFormat::fp32:
    case WeightFormat::int8:
    case WeightFormat::nf4: return true;
    default: return false;
  }
}

// Values are not converted to codes with scales: these formats are only for values that are shipped so.
bool can_hold(WeightFormat format, Split split) {
  if (slice_bits(format) != 0 || slice_bits(split) != 0) return slice_bits(format) == slice_bits(split);
  if (is_blocks(format)) return static_cast<uint64_t>(format) == static_cast<uint64_t>(split);
  // Other formats have the matrix's own order of columns.
  if (is_blocks(split)) return is_value_format(format) && !(is_grouped(split) && grouped_codes(split).order_bytes > 0);
  if (format == WeightFormat::mxfp4) return split == Split::mxfp4;
  return format != WeightFormat::fp8 || split == Split::fp8;
}

// Rows of a block format that are converted: their matrix in that format and their values are in the scratch.
class ConvertedBlocks {
 public:
  explicit ConvertedBlocks(const RowsToWrite& written)
      : needed_(is_blocks(written.split) && is_value_format(written.format)),
        format_(static_cast<WeightFormat>(written.split)),
        columns_(written.columns) {
    // The tiles of the tensor need not be those of the matrix. Split::fp8 has the same planes, without tiles.
    if (kind_of(written.split) != Split::fp8_tile) return;
    needed_ = false;
    split_ = Split::fp8;
  }

  uint64_t scratch_bytes(int64_t rows) const {
    if (!needed_) return 0;
    return LaneScratch::padded(matrix_bytes(rows)) + LaneScratch::padded(value_bytes(rows));
  }

  // Starts the conversion of the rows behind what brings them; changes them into rows of FP32.
  void convert(RowsToWrite& rows, LaneScratch& scratch, cudaStream_t stream) const {
    if (split_ != Split::none_fp32 && is_value_format(rows.format)) rows.split = split_;
    if (!needed_) return;
    RowsToWrite blocks = rows;
    blocks.format = format_;
    blocks.storage = scratch.take(matrix_bytes(rows.row_count));
    blocks.rows = rows.row_count;
    blocks.first_row = 0;
    check(launch_write_blocks(blocks, stream), "laying weights out");
    auto* const values = reinterpret_cast<float*>(scratch.take(value_bytes(rows.row_count)));
    check(launch_embed_blocks(values, format_, blocks.storage, rows.row_count, columns_, nullptr, static_cast<int>(rows.row_count),
                              stream),
          "decoding weights");
    rows.split = Split::none_fp32;
    rows.planes[0] = reinterpret_cast<const uint8_t*>(values);
  }

 private:
  uint64_t matrix_bytes(int64_t rows) const { return matrix_storage_bytes(format_, rows, columns_); }
  uint64_t value_bytes(int64_t rows) const { return static_cast<uint64_t>(rows * columns_) * sizeof(float); }

  bool needed_;
  WeightFormat format_;
  int64_t columns_;
  Split split_ = Split::none_fp32;
};

// The number of rows that fit in the scratch at once, at least one.
int64_t fitting_rows(const Transfers& transfers, const ConvertedBlocks& blocks, int planes, int64_t rows, uint64_t scratch) {
  while (rows > 1) {
    const uint64_t needed = scratch_bytes(transfers, planes, rows) + blocks.scratch_bytes(rows);
    if (needed <= scratch) break;
    const double share = static_cast<double>(scratch) / static_cast<double>(needed);
    rows = std::clamp<int64_t>(static_cast<int64_t>(share * static_cast<double>(rows)), 1, rows - 1);
  }
  return rows;
}

// Starts all copies and kernels, with the lane's mark behind the last copy. Returns whether kernels read host memory.
bool ask(LoadLanes::Use& lane, RowsToWrite written, int64_t rows, Transfers& transfers) {
  const int planes = plane_count(written.split);
  const ConvertedBlocks blocks(written);
  for (int64_t done = 0; done < rows; done += written.row_count) {
    written.row_count = fitting_rows(transfers, blocks, planes, rows - done, lane->scratch.bytes);
    lane.need_scratch(scratch_bytes(transfers, planes, written.row_count) + blocks.scratch_bytes(written.row_count));
    LaneScratch scratch(lane->scratch);
    for (int plane = 0; plane < planes; ++plane) {
      written.planes[plane] = transfers[static_cast<size_t>(plane)].bring(written.row_count, scratch, lane->stream);
    }
    lane.mark();
    for (int plane = 0; plane < planes; ++plane) transfers[static_cast<size_t>(plane)].decode(lane->stream);
    RowsToWrite plain = written;
    blocks.convert(plain, scratch, lane->stream);
    check(launch_write_rows(plain, lane->stream), "laying weights out");
    written.first_row += written.row_count;
  }
  return std::any_of(transfers.begin(), transfers.end(), [](const PlaneTransfer& plane) { return plane.reads_host_memory(); });
}

}  // namespace

void WeightWriter::write_coded_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const PlaneSource* planes) {
  if (rows <= 0) return;
  if (!can_hold(matrix.format, split)) throw Error(ErrorCode::internal, "a matrix's format holds no weights of this kind");
  Transfers transfers;
  for (int plane = 0; plane < plane_count(split); ++plane) {
    if (planes[plane].plain == nullptr && planes[plane].blocks == nullptr) continue;
    const auto row_bytes = static_cast<uint64_t>(plane_row_bytes(split, plane, matrix.columns));
    transfers[static_cast<size_t>(plane)] = PlaneTransfer(planes[plane], row_bytes, staging_, multiprocessors_);
  }
  const ExpertMemoryDirectory::Found expert = experts_.find(matrix.storage.data);
  LoadLanes::Use lane(lanes_);
  if (expert.memory != nullptr) expert.memory->begin_write(expert.slot, *lane);
  RowsToWrite written;
  written.format = matrix.format;
  written.storage = static_cast<uint8_t*>(matrix.storage.data);
  written.lower = static_cast<uint8_t*>(matrix.lower.data);
  written.rows = matrix.rows;
  written.columns = matrix.columns;
  written.first_row = first_row;
  written.split = split;
  const bool host_memory_is_read = ask(lane, written, rows, transfers);
  if (expert.memory != nullptr) expert.memory->end_write(expert.slot, *lane);
  if (expert.memory == nullptr || host_memory_is_read) lane.mark();
  lane.wait_for_mark();
  lane.let_go();
}

bool WeightWriter::write_fixed4_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const uint8_t* const* planes) {
  const Fixed4Tiles place = fixed4_tiles(matrix.columns, first_row, rows);
  uint8_t* const on_device = static_cast<uint8_t*>(matrix.storage.data) + place.offset;
  std::vector<uint8_t> tiles(static_cast<size_t>(place.bytes));
  if (place.begins_within_tile) {
    LoadLanes::Use lane(lanes_);
    const auto bytes = static_cast<size_t>(fixed4_tiles(matrix.columns, first_row, 1).bytes);
    check(cudaMemcpyAsync(tiles.data(), on_device, bytes, cudaMemcpyDeviceToHost, lane->stream), "reading a tile of weights");
    lane.mark();
    lane.wait_for_mark();
    lane.let_go();
  }
  if (!encode_fixed4_rows(tiles.data(), matrix.columns, first_row, rows, split, planes)) return false;
  LoadLanes::Use lane(lanes_);
  check(cudaMemcpyAsync(on_device, tiles.data(), tiles.size(), cudaMemcpyHostToDevice, lane->stream),
        "copying weights to the device");
  lane.mark();
  lane.wait_for_mark();
  lane.let_go();
  return true;
}

bool WeightWriter::write_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const uint8_t* const* planes) {
  if (!can_hold(matrix.format, split)) return false;
  if (matrix.format == WeightFormat::fixed4) return write_fixed4_rows(matrix, first_row, rows, split, planes);
  PlaneSource sources[kMaxPlanes];
  for (int plane = 0; plane < plane_count(split); ++plane) sources[plane].plain = planes[plane];
  write_coded_rows(matrix, first_row, rows, split, sources);
  return true;
}

}  // namespace odmoe::cuda
