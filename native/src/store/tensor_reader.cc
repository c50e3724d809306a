#include <algorithm>

#include "codec.h"
#include "odmoe/error.h"
#include "odmoe/store.h"
#include "stored_chunk.h"

namespace odmoe {

// Reads one plane through its chunks, whatever stretches are asked for.
class PlaneCursor {
 public:
  void add(const ChunkLocation& chunk) { chunks_.push_back(chunk); }

  // Throws corrupt unless the chunks make up exactly `bytes`.
  void check_size(uint64_t bytes, int plane) const {
    uint64_t total = 0;
    for (const ChunkLocation& chunk : chunks_) {
      if (chunk.plain_bytes > bytes - total) total = bytes + 1;
      if (total > bytes) break;
      total += chunk.plain_bytes;
    }
    if (total == bytes) return;
    const std::string what = "the chunks of plane " + std::to_string(plane) + " do not make up the tensor's " +
                             std::to_string(bytes) + " bytes";
    if (chunks_.empty()) throw Error("PACK_CORRUPT", what + "; there are none; pack the model again");
    throw_corrupt(chunks_.front(), what);
  }

  void read(uint8_t* out, uint64_t count) {
    while (count > 0) {
      if (stream_ == nullptr) open_next();
      const uint64_t piece = std::min(count, plain_left_);
      stream_->read(out, piece);
      out += piece;
      count -= piece;
      plain_left_ -= piece;
      if (plain_left_ == 0) close();
    }
  }

  uint64_t stored_bytes_read() const { return closed_bytes_ + (stored_ == nullptr ? 0 : stored_->read_bytes()); }

 private:
  void open_next() {
    const ChunkLocation& chunk = chunks_.at(next_++);
    if (file_ == nullptr || file_->path() != chunk.path) file_ = std::make_unique<File>(chunk.path);
    stored_ = std::make_unique<StoredChunk>(*file_, chunk);
    stream_ = codec_for(chunk.codec).decode(*stored_);
    plain_left_ = chunk.plain_bytes;
  }

  void close() {
    stored_->finish();
    closed_bytes_ += stored_->read_bytes();
    stream_.reset();
    stored_.reset();
  }

  std::vector<ChunkLocation> chunks_;
  size_t next_ = 0;
  std::unique_ptr<File> file_;
  std::unique_ptr<StoredChunk> stored_;
  std::unique_ptr<PlainStream> stream_;
  uint64_t plain_left_ = 0;
  uint64_t closed_bytes_ = 0;
};

TensorReader::TensorReader(const TensorSource& source)
    : split_(source.split), columns_(source.columns), rows_left_(source.rows) {
  for (int i = 0; i < plane_count(split_); i++) planes_.push_back(std::make_unique<PlaneCursor>());
  for (const ChunkLocation& chunk : source.chunks) {
    if (chunk.plane < 0 || chunk.plane >= plane_count(split_)) {
      throw_corrupt(chunk, "a chunk belongs to plane " + std::to_string(chunk.plane) + ", which the tensor has not got");
    }
    if (chunk.plain_bytes == 0) throw_corrupt(chunk, "the chunk is empty");
    planes_[static_cast<size_t>(chunk.plane)]->add(chunk);
  }
  const auto values = static_cast<uint64_t>(source.rows) * static_cast<uint64_t>(source.columns);
  for (int i = 0; i < plane_count(split_); i++) {
    planes_[static_cast<size_t>(i)]->check_size(values * static_cast<uint64_t>(plane_value_bytes(split_, i)), i);
  }
}

TensorReader::~TensorReader() = default;

void TensorReader::read_rows(int64_t rows, uint8_t* staging, const uint8_t** planes) {
  if (rows > rows_left_) throw Error("INTERNAL", "more rows asked for than the tensor has left");
  for (int i = 0; i < plane_count(split_); i++) {
    const auto bytes = static_cast<uint64_t>(rows * columns_) * static_cast<uint64_t>(plane_value_bytes(split_, i));
    planes_[static_cast<size_t>(i)]->read(staging, bytes);
    planes[i] = staging;
    staging += (bytes + 63) / 64 * 64;
  }
  rows_left_ -= rows;
}

uint64_t TensorReader::stored_bytes_read() const {
  uint64_t total = 0;
  for (const auto& plane : planes_) total += plane->stored_bytes_read();
  return total;
}

}  // namespace odmoe
