#include "viewed_matrix.h"

#include <algorithm>
#include <array>

#include "odmoe/error.h"
#include "quantized_weights.h"

namespace odmoe {
ViewedPlane::ViewedPlane(const std::vector<ChunkLocation>& chunks, int plane) {
  uint64_t begin = 0;
  for (const ChunkLocation& chunk : chunks) {
    if (chunk.plane != plane) continue;
    if (chunk.codec != CodecKind::raw) throw Error(ErrorCode::internal, "a view is of uncompressed chunks");
    parts_.push_back({chunk, begin});
    begin += chunk.plain_bytes;
    check_whole(chunk);
  }
}

File& ViewedPlane::open(const ChunkLocation& chunk) {
  if (file_ == nullptr || file_->path() != chunk.path) file_ = std::make_unique<File>(chunk.path);
  return *file_;
}

// Checks that the file has the chunk's last byte, before memory is taken for its rows.
void ViewedPlane::check_whole(const ChunkLocation& chunk) {
  const File& file = open(chunk);
  uint8_t last = 0;
  if (file.read_at(chunk.offset_bytes + chunk.stored_bytes - 1, &last, 1) == 0) {
    throw_corrupt(chunk, "the file ends before the chunk's " + std::to_string(chunk.stored_bytes) + " bytes");
  }
  if (!chunk.crc32c.has_value()) return;
  StoredChunk reading(file, chunk);
  reading.finish();
  read_bytes_ += chunk.stored_bytes;
}

void ViewedPlane::read(uint64_t offset, uint8_t* out, uint64_t count) {
  const auto behind = std::upper_bound(parts_.begin(), parts_.end(), offset,
                                       [](uint64_t position, const Part& part) { return position < part.begin; });
  for (auto part = behind - 1; count > 0; ++part) {
    const uint64_t within = offset - part->begin;
    const uint64_t piece = std::min(count, part->chunk.plain_bytes - within);
    const uint64_t got = open(part->chunk).read_at(part->chunk.offset_bytes + within, out, piece);
    if (got < piece) throw_truncated(part->chunk, within + got);
    read_bytes_ += piece;
    offset += piece;
    out += piece;
    count -= piece;
  }
}

ViewedMatrix::ViewedMatrix(const TensorSource& source)
    : split_(source.view->stored_split),
      columns_(source.view->stored_columns),
      scale_block_rows_(shares_scales(split_) ? source.view->scale_block_rows : 1),
      rows_at_once_(std::max<int64_t>(1, kBatchBytes / plane_row_bytes(split_, 0, columns_))),
      first_chunk_(source.chunks.front()) {
  for (int plane = 0; plane < plane_count(split_); plane++) planes_.emplace_back(source.chunks, plane);
}

void ViewedMatrix::read_rows(int64_t first, int64_t count) {
  first_ = first;
  const auto read = [&](int plane, int64_t from, int64_t rows) {
    const auto row_bytes = static_cast<uint64_t>(plane_row_bytes(split_, plane, columns_));
    std::vector<uint8_t>& buffer = buffers_[plane];
    const uint64_t bytes = static_cast<uint64_t>(rows) * row_bytes;
    if (buffer.size() < bytes) buffer.resize(bytes);
    planes_[static_cast<size_t>(plane)].read(static_cast<uint64_t>(from) * row_bytes, buffer.data(), bytes);
  };
  read(0, first, count);
  if (!is_quantized(split_)) return;
  // Rows of blocks have their scales in the only plane.
  if (planes_.size() > 1) read(1, scale_row(first), scale_row(first + count - 1) - scale_row(first) + 1);
  for (int64_t row = 0; row < count; row++) {
    const uint8_t* planes[kMaxPlanes] = {};
    row_planes(row, planes);
    const char* const fault = quantized_fault(split_, planes, columns_);
    if (fault != nullptr) throw_corrupt(first_chunk_, std::string(fault) + ", in row " + std::to_string(first + row));
  }
}

void ViewedMatrix::row_planes(int64_t row, const uint8_t** planes) const {
  planes[0] = buffers_[0].data() + row * plane_row_bytes(split_, 0, columns_);
  if (planes_.size() < 2 || !is_quantized(split_)) return;
  const int64_t scales = scale_row(first_ + row) - scale_row(first_);
  planes[1] = buffers_[1].data() + scales * plane_row_bytes(split_, 1, columns_);
}

uint64_t ViewedMatrix::read_bytes() const {
  uint64_t total = 0;
  for (const ViewedPlane& plane : planes_) total += plane.read_bytes();
  return total;
}

}  // namespace odmoe
