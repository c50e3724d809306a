// fixed4: four bits per value for the chunk's 15 most frequent values; the others are escaped and listed separately. Decoding is a
// table lookup without any dependence between values, then a scattered store for each of the few escapes.
#pragma once
#include "block_codec.h"
#include "plane_kernels.h"

namespace odmoe {

std::unique_ptr<BlockEncoder> make_fixed4_encoder(std::span<const uint8_t> plain);
std::unique_ptr<BlockDecoder> make_fixed4_decoder(const PlaneKernels& kernels);

}  // namespace odmoe
