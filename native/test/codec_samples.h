// Sample planes for codecs, and functions that encode and decode them.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../src/store/plane_kernels.h"
#include "odmoe/codec.h"

namespace odmoe::test {

inline constexpr CodecKind kAllCodecs[] = {CodecKind::raw,     CodecKind::zstd,    CodecKind::lz4hc, CodecKind::fixed4,
                                           CodecKind::huffman, CodecKind::packed3, CodecKind::e4m3};

const char* codec_name(CodecKind codec);
// A level that the codec accepts.
int some_level(CodecKind codec);

struct Sample {
  std::string name;
  std::vector<uint8_t> bytes;
};

// Exponents of normally distributed weights.
std::vector<uint8_t> gaussian_exponents(size_t count, uint32_t seed);
// Random, constant, sorted, and worst cases for single codecs; `count` bytes each.
std::vector<Sample> plane_samples(size_t count);
// The same bytes, reduced to their lowest three bits where the codec accepts only these.
std::vector<uint8_t> fitting(CodecKind codec, std::vector<uint8_t> bytes);

// Decodes all blocks, the last one first, each into memory of exactly the size that decode_block requires.
std::vector<uint8_t> decode_all(ChunkDecoder& decoder, CodecKind codec, std::span<const uint8_t> stored, uint64_t plain_bytes,
                                uint64_t block_bytes);

}  // namespace odmoe::test
