#include "codec_samples.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "native_tests.h"

namespace odmoe::test {
namespace {

// Value v is half as frequent as value v - 1: an unlimited prefix code would need ever longer codes.
std::vector<uint8_t> geometric(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::geometric_distribution<int> distribution(0.5);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(std::min(distribution(generator), 255));
  return bytes;
}

// Frequencies grow like Fibonacci's numbers, the worst case for the depth of a Huffman tree.
std::vector<uint8_t> fibonacci(size_t count) {
  std::vector<uint8_t> bytes;
  uint64_t run = 1;
  uint64_t next = 1;
  for (int value = 0; value < 40 && bytes.size() < count; value++) {
    bytes.insert(bytes.end(), std::min<size_t>(run, count - bytes.size()), static_cast<uint8_t>(value));
    next = std::exchange(run, run + next);
  }
  bytes.resize(count, 40);
  return bytes;
}

std::vector<uint8_t> uniform(size_t count, uint32_t seed, uint32_t below) {
  std::mt19937 generator(seed);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(generator() % below);
  return bytes;
}

}  // namespace

const char* codec_name(CodecKind codec) {
  constexpr const char* kNames[] = {"raw", "zstd", "lz4hc", "fixed4", "huffman", "packed3", "e4m3"};
  return kNames[static_cast<size_t>(codec)];
}

int some_level(CodecKind codec) { return codec == CodecKind::zstd ? 1 : codec == CodecKind::lz4hc ? 3 : 0; }

std::vector<uint8_t> gaussian_exponents(size_t count, uint32_t seed) {
  const std::vector<float> values = random_values(count, seed, 0.02f);
  std::vector<uint8_t> exponents(count);
  for (size_t i = 0; i < count; i++) {
    uint32_t bits;
    std::memcpy(&bits, &values[i], 4);
    exponents[i] = static_cast<uint8_t>(bits >> 23);
  }
  return exponents;
}

std::vector<Sample> plane_samples(size_t count) {
  std::vector<Sample> samples = {
      {"Gaussian exponents", gaussian_exponents(count, 1)},
      {"uniform over all values", uniform(count, 2, 256)},
      {"one value", std::vector<uint8_t>(count, 127)},
      {"the largest value", std::vector<uint8_t>(count, 255)},
      {"two values", uniform(count, 3, 2)},
      {"15 values", uniform(count, 4, 15)},
      {"16 values", uniform(count, 5, 16)},
      {"17 values", uniform(count, 6, 17)},
      {"geometric", geometric(count, 7)},
      {"Fibonacci", fibonacci(count)},
  };
  std::vector<uint8_t> all_in_turn(count);
  for (size_t i = 0; i < count; i++) all_in_turn[i] = static_cast<uint8_t>(i);
  std::vector<uint8_t> sorted = gaussian_exponents(count, 8);
  std::sort(sorted.begin(), sorted.end());
  // Escapes only at the end of a chunk.
  std::vector<uint8_t> changing(count, 120);
  for (size_t i = count - count / 8; i < count; i++) changing[i] = static_cast<uint8_t>(i * 7);
  samples.push_back({"all values in turn", std::move(all_in_turn)});
  samples.push_back({"sorted", std::move(sorted)});
  samples.push_back({"changing at the end", std::move(changing)});
  return samples;
}

std::vector<uint8_t> fitting(CodecKind codec, std::vector<uint8_t> bytes) {
  if (codec != CodecKind::packed3) return bytes;
  for (uint8_t& byte : bytes) byte &= 7;
  return bytes;
}

std::vector<uint8_t> decode_all(ChunkDecoder& decoder, CodecKind codec, std::span<const uint8_t> stored, uint64_t plain_bytes,
                                uint64_t block_bytes) {
  decoder.open(codec, stored, plain_bytes, block_bytes);
  std::vector<uint8_t> plain(plain_bytes);
  for (uint64_t i = decoder.block_count(); i-- > 0;) {
    std::vector<uint8_t> scratch(decoder.plain_bytes_of(i) + ChunkDecoder::kScratchSlack);
    const uint8_t* const block = decoder.decode_block(i, scratch.data());
    std::memcpy(plain.data() + i * decoder.block_bytes(), block, decoder.plain_bytes_of(i));
  }
  return plain;
}

}  // namespace odmoe::test
