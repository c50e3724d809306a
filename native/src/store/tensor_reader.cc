#include <algorithm>
#include <cstring>

#include "odmoe/error.h"
#include "odmoe/store.h"
#include "quantized_weights.h"
#include "stored_chunk.h"
#include "tensor_view.h"

namespace odmoe {

// The plain bytes of one chunk, in order.
class PlainChunk {
 public:
  virtual ~PlainChunk() = default;
  virtual void read(uint8_t* out, uint64_t count) = 0;
  // To be called after the last byte: compares the checksum if that has not been done.
  virtual void finish() = 0;
  virtual uint64_t stored_bytes_read() const = 0;
};

// A chunk that is read as its bytes are requested.
class RawChunk : public PlainChunk {
 public:
  RawChunk(const File& file, const ChunkLocation& chunk) : stored_(file, chunk) {}
  void read(uint8_t* out, uint64_t count) override { stored_.read(out, count); }
  void finish() override { stored_.finish(); }
  uint64_t stored_bytes_read() const override { return stored_.read_bytes(); }

 private:
  StoredChunk stored_;
};

// A chunk that is read completely and checked, then decoded block by block.
class CodedChunk : public PlainChunk {
 public:
  CodedChunk(const File& file, const ChunkLocation& chunk, ChunkDecoder& decoder)
      : location_(chunk), decoder_(decoder), stored_(stored_size(chunk)) {
    StoredChunk reading(file, chunk);
    reading.read(stored_.data(), stored_.size());
    reading.finish();
    naming_the_chunk([&] { decoder_.open(chunk.codec, stored_, chunk.plain_bytes, 0); });
    scratch_.resize(std::min(decoder_.block_bytes(), chunk.plain_bytes) + ChunkDecoder::kScratchSlack);
  }

  void read(uint8_t* out, uint64_t count) override {
    while (count > 0) {
      if (block_left_ == 0) next_block();
      const uint64_t piece = std::min(count, block_left_);
      std::memcpy(out, block_, piece);
      out += piece;
      block_ += piece;
      count -= piece;
      block_left_ -= piece;
    }
  }

  void finish() override {}
  uint64_t stored_bytes_read() const override { return stored_.size(); }

 private:
  static uint64_t stored_size(const ChunkLocation& chunk) {
    if (chunk.stored_bytes <= UINT32_MAX) return chunk.stored_bytes;
    throw_corrupt(chunk, "a coded chunk stores " + std::to_string(chunk.stored_bytes) + " bytes");
  }

  template <typename Decoding>
  void naming_the_chunk(Decoding decoding) {
    try {
      decoding();
    } catch (const Error& error) {
      throw_corrupt(location_, error.what());
    }
  }

  void next_block() {
    naming_the_chunk([&] {
      block_left_ = decoder_.plain_bytes_of(next_block_);
      block_ = decoder_.decode_block(next_block_++, scratch_.data());
    });
  }

  const ChunkLocation& location_;
  ChunkDecoder& decoder_;
  std::vector<uint8_t> stored_;
  std::vector<uint8_t> scratch_;
  const uint8_t* block_ = nullptr;
  uint64_t next_block_ = 0;
  uint64_t block_left_ = 0;
};

// Reads one plane through its chunks, in pieces of any size.
class PlaneCursor {
 public:
  void add(const ChunkLocation& chunk) { chunks_.push_back(chunk); }

  void read(uint8_t* out, uint64_t count) {
    while (count > 0) {
      if (chunk_ == nullptr) open_next();
      const uint64_t piece = std::min(count, plain_left_);
      chunk_->read(out, piece);
      out += piece;
      count -= piece;
      plain_left_ -= piece;
      if (plain_left_ == 0) close();
    }
  }

  uint64_t stored_bytes_read() const { return closed_bytes_ + (chunk_ == nullptr ? 0 : chunk_->stored_bytes_read()); }

 private:
  void open_next() {
    const ChunkLocation& chunk = chunks_.at(next_++);
    if (file_ == nullptr || file_->path() != chunk.path) file_ = std::make_unique<File>(chunk.path);
    if (chunk.codec == CodecKind::raw) {
      chunk_ = std::make_unique<RawChunk>(*file_, chunk);
    } else {
      if (decoder_ == nullptr) decoder_ = std::make_unique<ChunkDecoder>();
      chunk_ = std::make_unique<CodedChunk>(*file_, chunk, *decoder_);
    }
    plain_left_ = chunk.plain_bytes;
  }

  void close() {
    chunk_->finish();
    closed_bytes_ += chunk_->stored_bytes_read();
    chunk_.reset();
  }

  std::vector<ChunkLocation> chunks_;
  size_t next_ = 0;
  std::unique_ptr<File> file_;
  std::unique_ptr<ChunkDecoder> decoder_;
  std::unique_ptr<PlainChunk> chunk_;
  uint64_t plain_left_ = 0;
  uint64_t closed_bytes_ = 0;
};

TensorReader::TensorReader(const TensorSource& source, int planes)
    : split_(source.split), columns_(source.columns), rows_left_(source.rows) {
  check_chunks(source);
  if (source.view.has_value()) {
    view_ = std::make_unique<ViewReader>(source);
    return;
  }
  first_chunk_ = source.chunks.front();
  for (int i = 0; i < std::min(planes, plane_count(split_)); i++) planes_.push_back(std::make_unique<PlaneCursor>());
  for (const ChunkLocation& chunk : source.chunks) {
    const auto plane = static_cast<size_t>(chunk.plane);
    if (plane < planes_.size()) planes_[plane]->add(chunk);
  }
}

TensorReader::~TensorReader() = default;

void TensorReader::read_rows(int64_t rows, uint8_t* staging, const uint8_t** planes) {
  if (rows > rows_left_) throw Error(ErrorCode::internal, "more rows asked for than the tensor has left");
  uint8_t* parts[kMaxPlanes] = {};
  for (int i = 0; i < plane_count(split_); i++) {
    planes[i] = nullptr;
    if (view_ == nullptr && static_cast<size_t>(i) >= planes_.size()) continue;
    const auto bytes = static_cast<uint64_t>(rows * plane_row_bytes(split_, i, columns_));
    parts[i] = staging;
    planes[i] = staging;
    staging += (bytes + 63) / 64 * 64;
    if (view_ == nullptr) planes_[static_cast<size_t>(i)]->read(parts[i], bytes);
  }
  rows_left_ -= rows;
  if (view_ != nullptr) return view_->read_rows(rows, parts);
  const char* const fault = quantized_fault(split_, planes, rows, columns_);
  if (fault != nullptr) throw_corrupt(first_chunk_, fault);
}

uint64_t TensorReader::stored_bytes_read() const {
  if (view_ != nullptr) return view_->stored_bytes_read();
  uint64_t total = 0;
  for (const auto& plane : planes_) total += plane->stored_bytes_read();
  return total;
}

}  // namespace odmoe
