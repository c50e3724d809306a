#include "block_codec.h"

#include "dictionary_codecs.h"
#include "odmoe/error.h"

namespace odmoe {

std::unique_ptr<BlockEncoder> make_block_encoder(CodecKind codec, int level, std::span<const uint8_t> plain) {
  (void)plain;
  switch (codec) {
    case CodecKind::zstd:
      return make_zstd_encoder(level);
    case CodecKind::lz4hc:
      return make_lz4hc_encoder(level);
    default:
      break;
  }
  throw Error("INTERNAL", "no encoder of this codec");
}

std::unique_ptr<BlockDecoder> make_block_decoder(CodecKind codec) {
  switch (codec) {
    case CodecKind::zstd:
      return make_zstd_decoder();
    case CodecKind::lz4hc:
      return make_lz4_decoder();
    default:
      return nullptr;
  }
}

}  // namespace odmoe
