// Functions that decode one value, or a few, of the codecs that the device supports (docs/pack-format.md, "Codecs"). The host can
// run them, too.
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
  const uint32_t upper = (nibbles >> 3 & 0x01010101u) * 0xffu;  // selects codes 8 to 15
  return (selected_bytes(t0, t1, selector) & ~upper) | (selected_bytes(t2, t3, selector) & upper);
}

// ---- huffman

inline constexpr uint32_t kHuffmanLongestCode = 11;
inline constexpr uint32_t kHuffmanLookupEntries = 1u << kHuffmanLongestCode;
inline constexpr uint32_t kHuffmanStreamValues = 128;
inline constexpr uint32_t kHuffmanGroupStreams = 32;

// The canonical code, by length. "In order" means a number of 11 bits whose highest bit is a code's first bit: codes rise with it,
// and so do their lengths.
struct HuffmanLengths {
  uint32_t ends[kHuffmanLongestCode + 2];     // in order: behind the last code of this length; the last entry is behind all codes
  uint32_t offsets[kHuffmanLongestCode + 1];  // a code plus this offset, in 32 bits, is its value's index in the code's order
};

// Computes `lengths` from the number of codes of each length.
ODMOE_BOTH void describe_lengths(HuffmanLengths& lengths, const uint32_t* counts) {
  uint32_t code = 0;
  uint32_t values = 0;
  for (uint32_t length = 1; length <= kHuffmanLongestCode; ++length) {
    lengths.offsets[length] = values - code;
    values += counts[length];
    code += counts[length];
    lengths.ends[length] = code << (kHuffmanLongestCode - length);
    code <<= 1;
  }
  lengths.ends[kHuffmanLongestCode + 1] = 0xffffffffu;
}

ODMOE_BOTH uint32_t reversed_code_bits(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __brev(bits) >> (32 - kHuffmanLongestCode);
#else
  uint32_t result = 0;
  for (uint32_t i = 0; i < kHuffmanLongestCode; ++i) result |= (bits >> i & 1) << (kHuffmanLongestCode - 1 - i);
  return result;
#endif
}

// The length of the code with which `in_order` begins, at least `length`. It is past the longest length where no code fits; that
// cannot happen with a complete code.
ODMOE_BOTH uint32_t huffman_length(uint32_t in_order, uint32_t length, const HuffmanLengths& lengths) {
  while (in_order >= lengths.ends[length]) ++length;
  return length;
}

// A code's value, and above it (from bit 8 on) its length; 0 where there is no code. `values`: all values in the code's order.
ODMOE_BOTH uint32_t huffman_entry(uint32_t in_order, uint32_t length, const HuffmanLengths& lengths, const uint8_t* values) {
  if (length > kHuffmanLongestCode) return 0;
  const uint32_t code = in_order >> (kHuffmanLongestCode - length);
  return values[(lengths.offsets[length] + code) & 0xff] | length << 8;
}

// Reads the bits of a stream in words, and loads one word ahead. Reads nothing outside the block; bits there count as zero.
class BitReader {
 public:
  // `start`: the start of the stream, from the block's start; it may be the block's end.
  ODMOE_BOTH BitReader(const uint8_t* block, uint32_t block_bytes, uint32_t start) {
    begin_ = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(block) & 3);
    aligned_ = block - begin_;
    bytes_ = block_bytes;
    const uint32_t dropped = ((begin_ + start) & 3) * 8;
    next_ = (begin_ + start) & ~3u;
    bits_ = word() >> dropped;
    filled_ = 32 - dropped;
    ahead_ = word();
  }

  // Makes at least 22 bits available: two of the longest codes.
  ODMOE_BOTH void refill() {
    if (filled_ >= 2 * kHuffmanLongestCode) return;
    bits_ |= uint64_t{ahead_} << filled_;
    filled_ += 32;
    ahead_ = word();
  }
  ODMOE_BOTH uint32_t peek() const { return static_cast<uint32_t>(bits_) & (kHuffmanLookupEntries - 1); }
  ODMOE_BOTH void skip(uint32_t count) {
    bits_ >>= count;
    filled_ -= count;
  }

 private:
  ODMOE_BOTH uint32_t word() {
    const uint32_t at = next_ - begin_;  // wraps to a huge number before the block
    const uint8_t* const bytes = aligned_ + next_;
    next_ += 4;
    if (at < bytes_ && bytes_ - at >= 4) return *reinterpret_cast<const uint32_t*>(bytes);
    uint32_t some = 0;
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (uint32_t i = 0; i < 4; ++i) {
      if (at + i < bytes_) some |= static_cast<uint32_t>(bytes[i]) << 8 * i;
    }
    return some;
  }

  const uint8_t* aligned_;
  uint32_t begin_;
  uint32_t bytes_;
  uint32_t next_;  // counted from aligned_
  uint32_t ahead_;
  uint64_t bits_;
  uint32_t filled_;
};

// ---- both

// A number at any address.
ODMOE_BOTH uint32_t word_at(const uint8_t* bytes) {
  return bytes[0] | static_cast<uint32_t>(bytes[1]) << 8 | static_cast<uint32_t>(bytes[2]) << 16 |
         static_cast<uint32_t>(bytes[3]) << 24;
}

}  // namespace odmoe::cuda
