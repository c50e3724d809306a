// A codec's functions for one block; chunk_codec.cc handles the chunk around it. A new codec needs these two classes and a line in
// each of the two functions at the end.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "odmoe/codec.h"
#include "plane_kernels.h"

namespace odmoe {

// Throws PACK_CORRUPT: a chunk is not in the form that its codec writes. A caller that knows the chunk's place adds it to the
// error.
[[noreturn]] void throw_corrupt_chunk(const std::string& what);

class BlockEncoder {
 public:
  virtual ~BlockEncoder() = default;
  // The table that all blocks of the chunk share, stored once before them; a multiple of 16 bytes.
  virtual std::vector<uint8_t> table() const { return {}; }
  // Appends the coded block. If it is not smaller than the plain bytes, the plain bytes are stored in its place.
  virtual void encode(std::span<const uint8_t> plain, std::vector<uint8_t>& out) = 0;
};

class BlockDecoder {
 public:
  virtual ~BlockDecoder() = default;
  virtual uint64_t table_bytes() const { return 0; }
  // `table`: table_bytes() of a new chunk. Throws PACK_CORRUPT.
  virtual void open(const uint8_t* table) { (void)table; }
  // Checks a coded block by its sizes alone. Throws PACK_CORRUPT.
  virtual void check(std::span<const uint8_t> coded, uint64_t plain_bytes) const { (void)coded, (void)plain_bytes; }
  // Fills `plain`; may write ChunkDecoder::kScratchSlack bytes more. Throws PACK_CORRUPT.
  virtual void decode(std::span<const uint8_t> coded, std::span<uint8_t> plain) = 0;
};

// `plain`: the whole chunk; it is then encoded in blocks of `block_bytes`. Throws INTERNAL for a level that the codec does not have.
std::unique_ptr<BlockEncoder> make_block_encoder(CodecKind codec, int level, std::span<const uint8_t> plain, uint64_t block_bytes);
// Null for raw.
std::unique_ptr<BlockDecoder> make_block_decoder(CodecKind codec, const PlaneKernels& kernels);

}  // namespace odmoe
