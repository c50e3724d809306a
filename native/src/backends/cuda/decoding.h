// What decodes one value, or a few, of the codecs that the device decodes (docs/pack-format.md, "Codecs"), as functions that the host
// can run too.
#pragma once
#include "device_code.h"

namespace odmoe::cuda {

// ---- fixed4

inline constexpr uint32_t kFixed4GroupValues = 32;
inline constexpr uint32_t kFixed4GroupBytes = 16;
inline constexpr uint32_t kFixed4WindowValues = 65536;

// Four bytes out of the eight of `low` and `high`, by the lowest three bits of each of `selector`'s four nibbles.
ODMOE_BOTH uint32_t selected_bytes(uint32_t low, uint32_t high, uint32_t selector) {
#ifdef __CUDA_ARCH__
  return __byte_perm(low, high, selector & 0x7777u);
#else
  const uint64_t both = uint64_t{high} << 32 | low;
  uint32_t bytes = 0;
  for (int i = 0; i < 4; ++i) bytes |= static_cast<uint32_t>(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return bytes;
#endif
}

// The four values of four codes, one in the low half of each byte of `codes`; t0 to t3: the table's 16 bytes.
ODMOE_BOTH uint32_t fixed4_values(uint32_t codes, uint32_t t0, uint32_t t1, uint32_t t2, uint32_t t3) {
  const uint32_t nibbles = codes & 0x0f0f0f0fu;
  const uint32_t pairs = (nibbles | nibbles >> 4) & 0x00ff00ffu;
  const uint32_t selector = pairs | pairs >> 8;
  const uint32_t upper = (nibbles >> 3 & 0x01010101u) * 0xffu;  // of codes 8 to 15
  return (selected_bytes(t0, t1, selector) & ~upper) | (selected_bytes(t2, t3, selector) & upper);
}

// ---- huffman

inline constexpr uint32_t kHuffmanLongestCode = 11;
inline constexpr uint32_t kHuffmanLookupEntries = 1u << kHuffmanLongestCode;
inline constexpr uint32_t kHuffmanStreamValues = 128;
inline constexpr uint32_t kHuffmanGroupStreams = 32;

// The canonical code, by length: its first code, how many it has, and where its first value stands among all in the code's order.
struct HuffmanLengths {
  uint32_t first[kHuffmanLongestCode + 1];
  uint32_t count[kHuffmanLongestCode + 1];
  uint32_t offset[kHuffmanLongestCode + 1];
};

ODMOE_BOTH uint32_t reversed_code_bits(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __brev(bits) >> (32 - kHuffmanLongestCode);
#else
  uint32_t result = 0;
  for (uint32_t i = 0; i < kHuffmanLongestCode; ++i) result |= (bits >> i & 1) << (kHuffmanLongestCode - 1 - i);
  return result;
#endif
}

// What a stream's next 11 bits begin with: its value, and above it (from bit 8 on) its length. `values`: all in the code's order. 0 where
// no code fits, which a complete code has not got.
ODMOE_BOTH uint32_t huffman_entry(uint32_t bits, const HuffmanLengths& lengths, const uint8_t* values) {
  const uint32_t in_order = reversed_code_bits(bits);
  for (uint32_t length = 1; length <= kHuffmanLongestCode; ++length) {
    const uint32_t code = in_order >> (kHuffmanLongestCode - length);
    const uint32_t rank = code - lengths.first[length];
    if (code >= lengths.first[length] && rank < lengths.count[length]) {
      return values[(lengths.offset[length] + rank) & 0xff] | length << 8;
    }
  }
  return 0;
}

// The bits of a stream, in words. Reads nothing outside the block: what would lie there is zero.
class BitReader {
 public:
  // `start`: where the stream begins, from the block's start; may be past its end.
  ODMOE_BOTH BitReader(const uint8_t* block, uint64_t block_bytes, uint64_t start) {
    const uint64_t beyond = reinterpret_cast<uintptr_t>(block) & 3;
    aligned_ = block - beyond;
    begin_ = beyond;
    end_ = beyond + block_bytes;
    next_ = (begin_ + start) & ~uint64_t{3};
    const uint32_t dropped = static_cast<uint32_t>((begin_ + start) & 3) * 8;
    bits_ = word() >> dropped;
    filled_ = 32 - dropped;
  }

  // At least 22 bits, two of the longest codes, are there.
  ODMOE_BOTH void refill() {
    if (filled_ >= 2 * kHuffmanLongestCode) return;
    bits_ |= uint64_t{word()} << filled_;
    filled_ += 32;
  }
  ODMOE_BOTH uint32_t peek() const { return static_cast<uint32_t>(bits_) & (kHuffmanLookupEntries - 1); }
  ODMOE_BOTH void skip(uint32_t count) {
    bits_ >>= count;
    filled_ -= count;
  }

 private:
  ODMOE_BOTH uint32_t word() {
    const uint64_t at = next_;
    next_ += 4;
    if (at >= begin_ && at + 4 <= end_) return *reinterpret_cast<const uint32_t*>(aligned_ + at);
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      if (at + i >= begin_ && at + i < end_) bytes |= static_cast<uint32_t>(aligned_[at + i]) << 8 * i;
    }
    return bytes;
  }

  const uint8_t* aligned_;
  uint64_t begin_;
  uint64_t end_;
  uint64_t next_;
  uint64_t bits_;
  uint32_t filled_;
};

// ---- both

// A number that may stand anywhere.
ODMOE_BOTH uint32_t word_at(const uint8_t* bytes) {
  return bytes[0] | static_cast<uint32_t>(bytes[1]) << 8 | static_cast<uint32_t>(bytes[2]) << 16 |
         static_cast<uint32_t>(bytes[3]) << 24;
}

}  // namespace odmoe::cuda
