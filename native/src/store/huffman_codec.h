// huffman: one prefix code per chunk; every 128 values are a separate stream of bits, so that a warp decodes 32 streams in parallel
// and a processor core several side by side (after DFloat11 and FluxMoE section 4.2, with stream lengths in place of gaps).
#pragma once
#include "block_codec.h"
#include "plane_kernels.h"

namespace odmoe {

std::unique_ptr<BlockEncoder> make_huffman_encoder(std::span<const uint8_t> plain);
std::unique_ptr<BlockDecoder> make_huffman_decoder(const PlaneKernels& kernels);

}  // namespace odmoe
