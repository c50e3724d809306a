// e4m3: FP8 values, one a byte. Exponents in a prefix code, two of them a symbol; signs and mantissas as they are, two a byte.
#pragma once
#include "block_codec.h"

namespace odmoe {

std::unique_ptr<BlockEncoder> make_e4m3_encoder(std::span<const uint8_t> plain, uint64_t block_bytes);
std::unique_ptr<BlockDecoder> make_e4m3_decoder(const PlaneKernels& kernels);

}  // namespace odmoe
