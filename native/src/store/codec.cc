#include "codec.h"

#include "odmoe/error.h"

namespace odmoe {
namespace {

class RawStream : public PlainStream {
 public:
  explicit RawStream(StoredChunk& stored) : stored_(stored) {}
  void read(uint8_t* out, uint64_t count) override { stored_.read(out, count); }

 private:
  StoredChunk& stored_;
};

class RawCodec : public Codec {
 public:
  std::unique_ptr<PlainStream> decode(StoredChunk& stored) const override {
    const ChunkLocation& chunk = stored.location();
    if (chunk.stored_bytes != chunk.plain_bytes) {
      throw_corrupt(chunk, "an uncompressed chunk stores " + std::to_string(chunk.stored_bytes) + " bytes for " +
                               std::to_string(chunk.plain_bytes));
    }
    return std::make_unique<RawStream>(stored);
  }
};

}  // namespace

const Codec& codec_for(CodecKind kind) {
  static const RawCodec raw;
  switch (kind) {
    case CodecKind::raw:
      return raw;
  }
  throw Error("INTERNAL", "unknown codec");
}

}  // namespace odmoe
