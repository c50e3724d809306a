// Encodes and decodes the bytes of a plane's chunk (docs/pack-format.md, "Codecs"). Every coded chunk is cut into blocks that
// are decoded independently of one another; an index at the chunk's start gives the place of each block.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "odmoe/formats.h"

namespace odmoe {

// Bounds of the format: plain bytes of one chunk and of one block.
inline constexpr uint64_t kLargestPlainChunk = uint64_t{1} << 31;
inline constexpr uint64_t kLargestPlainBlock = uint64_t{1} << 24;

// Highest levels of the codecs with levels; the lowest level is 1.
inline constexpr int kHighestZstdLevel = 22;
inline constexpr int kHighestLz4hcLevel = 12;

// Encodes a whole chunk, in blocks of `block_bytes` plain bytes (the last may be shorter). `level`: 1 to 22 for zstd, 1 to 12 for
// lz4hc; the others have none. raw gives the plain bytes. Throws INTERNAL for arguments outside the bounds and for packed3 values
// of more than 3 bits.
std::vector<uint8_t> encode_chunk(CodecKind codec, int level, std::span<const uint8_t> plain, uint64_t block_bytes);

class BlockDecoder;
struct PlaneKernels;

// Decodes chunks, one at a time, on one thread. The constructor takes all memory that it needs.
class ChunkDecoder {
 public:
  // Most bytes that decode_block writes beyond the block's plain bytes.
  static constexpr uint64_t kScratchSlack = 64;

  ChunkDecoder();
  // Uses the inner loops of one instruction set.
  explicit ChunkDecoder(const PlaneKernels& kernels);
  ~ChunkDecoder();
  ChunkDecoder(const ChunkDecoder&) = delete;
  ChunkDecoder& operator=(const ChunkDecoder&) = delete;

  // Checks the chunk's header, table and block index. `stored` stays where it is until the next open. `block_bytes`: block size for
  // a raw chunk; other chunks store their own block size. Throws PACK_CORRUPT for bytes that encode_chunk cannot have written.
  void open(CodecKind codec, std::span<const uint8_t> stored, uint64_t plain_bytes, uint64_t block_bytes);

  // Plain bytes of each block except the last.
  uint64_t block_bytes() const { return block_bytes_; }
  uint64_t block_count() const { return (plain_bytes_ + block_bytes_ - 1) / block_bytes_; }
  uint64_t plain_bytes_of(uint64_t index) const;

  // The plain bytes of a block: in `scratch` (room for block_bytes() + kScratchSlack), or inside `stored` where the block is stored
  // plain. Throws PACK_CORRUPT; undetectable damage gives wrong bytes, so check the checksum of `stored` first.
  const uint8_t* decode_block(uint64_t index, uint8_t* scratch);

  // For other decoders (a device's): the chunk's table, and a block as it is stored. The block is plain where its size equals
  // plain_bytes_of. The sizes in a coded block have been checked as decode_block checks them; escapes and codes have not. Both
  // throw PACK_CORRUPT, and INTERNAL for a raw chunk.
  const uint8_t* table() const;
  std::span<const uint8_t> coded_block(uint64_t index) const;

 private:
  std::span<const uint8_t> stored_block(uint64_t index) const;
  void open_coded(CodecKind codec, uint64_t plain_bytes);

  std::vector<std::unique_ptr<BlockDecoder>> decoders_;  // by codec
  BlockDecoder* decoder_ = nullptr;                      // null: raw
  std::span<const uint8_t> stored_;
  const uint8_t* index_ = nullptr;
  uint64_t plain_bytes_ = 0;
  uint64_t block_bytes_ = 1;
};

// Joins exponents with signs and mantissas (split bf16-e8-sm8) to BF16 values, little-endian. `streaming`: `out` is so large that
// writes should bypass the caches.
void merge_bf16(const uint8_t* exponents, const uint8_t* sign_mantissas, uint8_t* out, uint64_t count, bool streaming);

}  // namespace odmoe
