#include "block_codec.h"

#include "dictionary_codecs.h"
#include "e4m3_codec.h"
#include "fixed4_codec.h"
#include "huffman_codec.h"
#include "odmoe/error.h"
#include "packed3_codec.h"

namespace odmoe {

std::unique_ptr<BlockEncoder> make_block_encoder(CodecKind codec, int level, std::span<const uint8_t> plain, uint64_t block_bytes) {
  switch (codec) {
    case CodecKind::zstd: return make_zstd_encoder(level);
    case CodecKind::lz4hc: return make_lz4hc_encoder(level);
    case CodecKind::fixed4: return make_fixed4_encoder(plain);
    case CodecKind::huffman: return make_huffman_encoder(plain);
    case CodecKind::packed3: return make_packed3_encoder(plain);
    case CodecKind::e4m3: return make_e4m3_encoder(plain, block_bytes);
    case CodecKind::raw: break;
  }
  throw Error(ErrorCode::internal, "raw chunks are not encoded in blocks");
}

std::unique_ptr<BlockDecoder> make_block_decoder(CodecKind codec, const PlaneKernels& kernels) {
  switch (codec) {
    case CodecKind::zstd: return make_zstd_decoder();
    case CodecKind::lz4hc: return make_lz4_decoder();
    case CodecKind::fixed4: return make_fixed4_decoder(kernels);
    case CodecKind::huffman: return make_huffman_decoder(kernels);
    case CodecKind::packed3: return make_packed3_decoder();
    case CodecKind::e4m3: return make_e4m3_decoder(kernels);
    case CodecKind::raw: break;
  }
  return nullptr;
}

}  // namespace odmoe
