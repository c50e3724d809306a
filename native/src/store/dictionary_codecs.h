// The general compressors: each block is one independent zstd frame or LZ4 block.
#pragma once
#include "block_codec.h"

namespace odmoe {

std::unique_ptr<BlockEncoder> make_zstd_encoder(int level);
std::unique_ptr<BlockDecoder> make_zstd_decoder();
std::unique_ptr<BlockEncoder> make_lz4hc_encoder(int level);
std::unique_ptr<BlockDecoder> make_lz4_decoder();

}  // namespace odmoe
