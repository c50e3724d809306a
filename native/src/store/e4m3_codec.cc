#include "e4m3_codec.h"

#include <algorithm>

#include "huffman_codec.h"

namespace odmoe {
namespace {

static_assert(kE4m3GroupValues <= ChunkDecoder::kScratchSlack, "the last group may be written beyond the block");

// Bytes of the exponents of a block, and as many of its signs and mantissas.
uint64_t half_bytes(uint64_t values) { return (values + kE4m3GroupValues - 1) / kE4m3GroupValues * kE4m3GroupBytes; }

// Appends four bits of each value, in groups; the last group is filled up with zeros.
template <typename FourBits>
void append_groups(std::span<const uint8_t> plain, std::vector<uint8_t>& out, FourBits four_bits) {
  size_t at = out.size();
  out.resize(at + half_bytes(plain.size()));
  for (size_t start = 0; start < plain.size(); start += kE4m3GroupValues, at += kE4m3GroupBytes) {
    const size_t count = std::min<size_t>(kE4m3GroupValues, plain.size() - start);
    for (size_t i = 0; i < count; i++) {
      const uint32_t bits = four_bits(plain[start + i]);
      const bool high = i >= kE4m3GroupBytes;
      uint8_t& byte = out[at + (high ? i - kE4m3GroupBytes : i)];
      byte = static_cast<uint8_t>(byte | (high ? bits << 4 : bits));
    }
  }
}

uint32_t exponent_of(uint32_t value) { return value >> 3 & 15; }
uint32_t sign_mantissa_of(uint32_t value) { return (value >> 4 & 8) | (value & 7); }

// The symbols of all blocks: the prefix code is made for them.
std::vector<uint8_t> exponents_of(std::span<const uint8_t> plain, uint64_t block_bytes) {
  std::vector<uint8_t> exponents;
  exponents.reserve(plain.size() / 2 + kE4m3GroupBytes);
  for (uint64_t start = 0; start < plain.size(); start += block_bytes) {
    append_groups(plain.subspan(start, std::min<uint64_t>(block_bytes, plain.size() - start)), exponents, exponent_of);
  }
  return exponents;
}

class E4m3Encoder : public BlockEncoder {
 public:
  E4m3Encoder(std::span<const uint8_t> plain, uint64_t block_bytes)
      : exponents_(make_huffman_encoder(exponents_of(plain, block_bytes))) {}

  std::vector<uint8_t> table() const override { return exponents_->table(); }

  void encode(std::span<const uint8_t> plain, std::vector<uint8_t>& out) override {
    append_groups(plain, out, sign_mantissa_of);
    block_.clear();
    append_groups(plain, block_, exponent_of);
    exponents_->encode(block_, out);
  }

 private:
  std::unique_ptr<BlockEncoder> exponents_;
  std::vector<uint8_t> block_;
};

class E4m3Decoder : public BlockDecoder {
 public:
  explicit E4m3Decoder(const PlaneKernels& kernels) : kernels_(kernels), exponents_(make_huffman_decoder(kernels)) {}

  uint64_t table_bytes() const override { return exponents_->table_bytes(); }
  void open(const uint8_t* table) override { exponents_->open(table); }

  void check(std::span<const uint8_t> coded, uint64_t plain_bytes) const override {
    const uint64_t half = half_bytes(plain_bytes);
    if (coded.size() < half) throw_corrupt_chunk("an e4m3 block ends within its signs and mantissas");
    exponents_->check(coded.subspan(half), half);
  }

  void decode(std::span<const uint8_t> coded, std::span<uint8_t> plain) override {
    const uint64_t half = half_bytes(plain.size());
    if (coded.size() < half) throw_corrupt_chunk("an e4m3 block ends within its signs and mantissas");
    // The exponents are decoded into the second half of the values' place: it is used up as the values are written.
    uint8_t* const exponents = plain.data() + half;
    exponents_->decode(coded.subspan(half), {exponents, half});
    kernels_.join_e4m3(exponents, coded.data(), plain.data(), half / kE4m3GroupBytes);
  }

 private:
  const PlaneKernels& kernels_;
  std::unique_ptr<BlockDecoder> exponents_;
};

}  // namespace

std::unique_ptr<BlockEncoder> make_e4m3_encoder(std::span<const uint8_t> plain, uint64_t block_bytes) {
  return std::make_unique<E4m3Encoder>(plain, block_bytes);
}

std::unique_ptr<BlockDecoder> make_e4m3_decoder(const PlaneKernels& kernels) { return std::make_unique<E4m3Decoder>(kernels); }

}  // namespace odmoe
