// packed3: values below 8, eight of them in three bytes.
#pragma once
#include "block_codec.h"

namespace odmoe {

// Throws INTERNAL when a value has more than 3 bits.
std::unique_ptr<BlockEncoder> make_packed3_encoder(std::span<const uint8_t> plain);
std::unique_ptr<BlockDecoder> make_packed3_decoder();

}  // namespace odmoe
