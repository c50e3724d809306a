// The chunk around the blocks: header, the codec's table, block index, blocks (docs/pack-format.md, "Codecs").
#include <algorithm>
#include <string>

#include "block_codec.h"
#include "little_endian.h"
#include "odmoe/codec.h"
#include "odmoe/error.h"

namespace odmoe {
namespace {

constexpr uint8_t kMagic[2] = {'O', 'C'};
constexpr uint8_t kLayoutVersion = 1;
constexpr uint64_t kHeaderBytes = 16;
// Blocks begin at multiples of this, so that an index entry's low bits can hold the count of padding bytes before the block.
constexpr uint64_t kBlockAlignment = 16;
constexpr uint64_t kPaddingMask = kBlockAlignment - 1;
constexpr uint64_t kIndexEntryBytes = 4;

uint64_t blocks_of(uint64_t plain_bytes, uint64_t block_bytes) { return (plain_bytes + block_bytes - 1) / block_bytes; }

// Appends zero bytes up to the next multiple of the alignment; returns their number.
uint64_t pad(std::vector<uint8_t>& bytes) {
  const uint64_t padding = (kBlockAlignment - bytes.size() % kBlockAlignment) % kBlockAlignment;
  bytes.resize(bytes.size() + padding);
  return padding;
}

void check_encoding(std::span<const uint8_t> plain, uint64_t block_bytes) {
  if (plain.empty() || plain.size() > kLargestPlainChunk || block_bytes == 0 || block_bytes > kLargestPlainBlock) {
    throw Error(ErrorCode::internal, "a chunk of " + std::to_string(plain.size()) + " bytes in blocks of " +
                                         std::to_string(block_bytes) + " cannot be encoded");
  }
}

void encode_block(BlockEncoder& encoder, std::span<const uint8_t> plain, std::vector<uint8_t>& stored) {
  const size_t start = stored.size();
  encoder.encode(plain, stored);
  if (stored.size() - start < plain.size()) return;
  stored.resize(start);
  stored.insert(stored.end(), plain.begin(), plain.end());
}

}  // namespace

void throw_corrupt_chunk(const std::string& what) { throw Error(ErrorCode::pack_corrupt, "the chunk cannot be decoded: " + what); }

std::vector<uint8_t> encode_chunk(CodecKind codec, int level, std::span<const uint8_t> plain, uint64_t block_bytes) {
  check_encoding(plain, block_bytes);
  if (codec == CodecKind::raw) return {plain.begin(), plain.end()};
  const std::unique_ptr<BlockEncoder> encoder = make_block_encoder(codec, level, plain, block_bytes);
  std::vector<uint8_t> stored = {kMagic[0], kMagic[1], static_cast<uint8_t>(codec), kLayoutVersion};
  stored.resize(kHeaderBytes);
  store_number(stored.data() + 4, static_cast<uint32_t>(block_bytes));
  store_number(stored.data() + 8, static_cast<uint64_t>(plain.size()));
  const std::vector<uint8_t> table = encoder->table();
  stored.insert(stored.end(), table.begin(), table.end());
  const size_t index = stored.size();
  const uint64_t count = blocks_of(plain.size(), block_bytes);
  stored.resize(index + (count + 1) * kIndexEntryBytes);
  for (uint64_t i = 0; i <= count; i++) {
    const uint64_t padding = pad(stored);
    if (stored.size() > UINT32_MAX) throw Error(ErrorCode::internal, "a coded chunk is larger than its index can say");
    store_number(stored.data() + index + i * kIndexEntryBytes, static_cast<uint32_t>(stored.size() | padding));
    if (i == count) break;
    encode_block(*encoder, plain.subspan(i * block_bytes, std::min(block_bytes, plain.size() - i * block_bytes)), stored);
  }
  return stored;
}

ChunkDecoder::ChunkDecoder() : ChunkDecoder(plane_kernels()) {}

ChunkDecoder::ChunkDecoder(const PlaneKernels& kernels) {
  for (int codec = 0; codec <= static_cast<int>(CodecKind::e4m3); codec++) {
    decoders_.push_back(make_block_decoder(static_cast<CodecKind>(codec), kernels));
  }
}

ChunkDecoder::~ChunkDecoder() = default;

void ChunkDecoder::open(CodecKind codec, std::span<const uint8_t> stored, uint64_t plain_bytes, uint64_t block_bytes) {
  if (plain_bytes == 0) throw_corrupt_chunk("it is empty");
  stored_ = stored;
  plain_bytes_ = plain_bytes;
  block_bytes_ = block_bytes;
  decoder_ = decoders_.at(static_cast<size_t>(codec)).get();
  if (decoder_ != nullptr) return open_coded(codec, plain_bytes);
  if (block_bytes == 0) throw Error(ErrorCode::internal, "a raw chunk cannot be cut into blocks of no bytes");
  if (stored.size() != plain_bytes) {
    throw_corrupt_chunk(std::to_string(stored.size()) + " uncompressed bytes are stored for " + std::to_string(plain_bytes));
  }
}

void ChunkDecoder::open_coded(CodecKind codec, uint64_t plain_bytes) {
  const uint8_t* const header = stored_.data();
  const uint64_t fixed_bytes = kHeaderBytes + decoder_->table_bytes();
  if (stored_.size() < fixed_bytes) throw_corrupt_chunk("it ends within its header");
  if (header[0] != kMagic[0] || header[1] != kMagic[1] || header[2] != static_cast<uint8_t>(codec) || header[3] != kLayoutVersion) {
    throw_corrupt_chunk("it does not begin as a chunk of its codec does");
  }
  block_bytes_ = load_number<uint32_t>(header + 4);
  if (block_bytes_ == 0 || block_bytes_ > kLargestPlainBlock || plain_bytes > kLargestPlainChunk ||
      load_number<uint64_t>(header + 8) != plain_bytes) {
    throw_corrupt_chunk("its sizes are not those of the manifest");
  }
  const uint64_t count = blocks_of(plain_bytes, block_bytes_);
  uint64_t end = fixed_bytes + (count + 1) * kIndexEntryBytes;
  if (stored_.size() < end) throw_corrupt_chunk("it ends within its block index");
  index_ = header + fixed_bytes;
  for (uint64_t i = 0; i <= count; i++) {
    const uint64_t entry = load_number<uint32_t>(index_ + i * kIndexEntryBytes);
    const uint64_t padding = entry & kPaddingMask;
    const uint64_t start = entry - padding;
    if (start < end + padding || start > stored_.size()) throw_corrupt_chunk("its block index contradicts itself");
    end = start;
  }
  if (end != stored_.size()) throw_corrupt_chunk("it is longer than its blocks");
  decoder_->open(header + kHeaderBytes);
}

uint64_t ChunkDecoder::plain_bytes_of(uint64_t index) const {
  if (index >= block_count()) throw Error(ErrorCode::internal, "a chunk has no block " + std::to_string(index));
  return std::min(block_bytes_, plain_bytes_ - index * block_bytes_);
}

std::span<const uint8_t> ChunkDecoder::stored_block(uint64_t index) const {
  const uint64_t start = load_number<uint32_t>(index_ + index * kIndexEntryBytes) & ~kPaddingMask;
  const uint64_t next = load_number<uint32_t>(index_ + (index + 1) * kIndexEntryBytes);
  const uint64_t end = (next & ~kPaddingMask) - (next & kPaddingMask);
  if (end - start > plain_bytes_of(index)) throw_corrupt_chunk("a block is larger coded than plain");
  return stored_.subspan(start, end - start);
}

const uint8_t* ChunkDecoder::decode_block(uint64_t index, uint8_t* scratch) {
  const uint64_t plain_bytes = plain_bytes_of(index);
  if (decoder_ == nullptr) return stored_.data() + index * block_bytes_;
  const std::span<const uint8_t> coded = stored_block(index);
  if (coded.size() == plain_bytes) return coded.data();
  decoder_->decode(coded, {scratch, plain_bytes});
  return scratch;
}

const uint8_t* ChunkDecoder::table() const {
  if (decoder_ == nullptr) throw Error(ErrorCode::internal, "a raw chunk has no table");
  return stored_.data() + kHeaderBytes;
}

std::span<const uint8_t> ChunkDecoder::coded_block(uint64_t index) const {
  if (decoder_ == nullptr) throw Error(ErrorCode::internal, "a raw chunk has no coded blocks");
  const uint64_t plain_bytes = plain_bytes_of(index);
  const std::span<const uint8_t> coded = stored_block(index);
  if (coded.size() != plain_bytes) decoder_->check(coded, plain_bytes);
  return coded;
}

void merge_bf16(const uint8_t* exponents, const uint8_t* sign_mantissas, uint8_t* out, uint64_t count, bool streaming) {
  plane_kernels().merge_bf16(exponents, sign_mantissas, out, count, streaming);
}

}  // namespace odmoe
