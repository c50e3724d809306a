// How a chunk's stored bytes become its plain bytes. A new codec is a class here and a line in codec_for().
#pragma once
#include <cstdint>
#include <memory>

#include "odmoe/store.h"
#include "stored_chunk.h"

namespace odmoe {

// The plain bytes of one chunk, in order.
class PlainStream {
 public:
  virtual ~PlainStream() = default;
  virtual void read(uint8_t* out, uint64_t count) = 0;
};

class Codec {
 public:
  virtual ~Codec() = default;
  // Decodes as it is read; `stored` outlives the stream. Throws corrupt when the sizes cannot be right.
  virtual std::unique_ptr<PlainStream> decode(StoredChunk& stored) const = 0;
};

const Codec& codec_for(CodecKind kind);

}  // namespace odmoe
