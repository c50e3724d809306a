// fixed4 tiles (weight_layout.h): reads them as blocks of the bf16 layout, or as FP32.
#pragma once
#include "kernels_tiles.h"

namespace odmoe::cpu {
namespace {

ODMOE_INLINE uint32_t load_word(const uint8_t* at) {
  uint32_t word;
  __builtin_memcpy(&word, at, 4);
  return word;
}

ODMOE_INLINE void store_word(uint8_t* at, uint32_t word) { __builtin_memcpy(at, &word, 4); }

// Writes the exponent of an escape into its weight in a block of the bf16 layout.
ODMOE_INLINE void put_escape(uint32_t escape, uint8_t* bf16) {
  uint8_t* const at = bf16 + (escape >> 8 & 255) * 2;
  uint16_t bits;
  __builtin_memcpy(&bits, at, 2);
  bits = static_cast<uint16_t>((bits & 0x807fu) | (escape & 255) << 7);
  __builtin_memcpy(at, &bits, 2);
}

// Turns a tile's blocks into the bf16 layout, from the first to the last.
class Fixed4Reader {
 public:
  Fixed4Reader() = default;
  Fixed4Reader(const uint8_t* tile, int64_t columns)
      : tile_(tile),
        blocks_(tile + fixed4_prefix_bytes(columns)),
        escape_(tile + kFixed4EscapesOffset),
        escapes_end_(escape_ + 4 * int64_t{load_word(tile + kFixed4CountOffset)}) {}

  // Expands blocks [first, first + count) to count * kBf16BlockBytes bytes; `first` is not before the end of the last call.
  template <int64_t kAhead>
  ODMOE_INLINE void expand(int64_t first, int64_t count, uint8_t* bf16) {
    Simd::template expand_fixed4<kAhead>(tile_, blocks_ + first * kFixed4BlockBytes, count, bf16);
    for (; escape_ != escapes_end_; escape_ += 4) {
      const uint32_t escape = load_word(escape_);
      const int64_t block = static_cast<int64_t>(escape >> 16) - first;
      if (block >= count) return;
      put_escape(escape, bf16 + block * kBf16BlockBytes);
    }
  }

 private:
  const uint8_t* tile_ = nullptr;
  const uint8_t* blocks_ = nullptr;
  const uint8_t* escape_ = nullptr;
  const uint8_t* escapes_end_ = nullptr;
};

// For instruction sets that keep the tables in registers: weights become FP32 just before the multiplication, two rows together.
// Blocks with escapes become blocks of the bf16 layout first.
template <class Set>
struct Fixed4Tile {
  static constexpr int64_t kBlockBytes = kFixed4BlockBytes;
  static constexpr bool kRowsTogether = true;
  const uint8_t* tile;
  const uint8_t* data;
  // The first escape that is not before the first block, and the end of all escapes.
  const uint8_t* escapes;
  const uint8_t* escapes_end;
  int64_t first;
  typename Set::Fixed4Tables tables;

  Fixed4Tile(const uint8_t* of_tile, int64_t columns, int64_t block)
      : tile(of_tile),
        data(of_tile + fixed4_prefix_bytes(columns) + block * kBlockBytes),
        escapes(of_tile + kFixed4EscapesOffset),
        escapes_end(escapes + 4 * int64_t{load_word(of_tile + kFixed4CountOffset)}),
        first(block),
        tables(Set::load_fixed4_tables(of_tile)) {
    while (escapes != escapes_end && static_cast<int64_t>(load_word(escapes) >> 16) < block) escapes += 4;
  }

  ODMOE_INLINE void expand_two_rows(int64_t block, int row, int pair, Vector (&low)[2], Vector (&high)[2]) const {
    const uint8_t* const codes = data + block * kBlockBytes + pair * kWidth * 4;
    Set::expand_fixed4_rows(tables, codes, codes + kFixed4CodeBytes + row * kLanes, row / 2, low, high);
  }

  // The block of an escape, counted from the first block; `blocks` if it is a later block or no escape is left.
  ODMOE_INLINE int64_t block_of(const uint8_t* escape, int64_t blocks) const {
    if (escape == escapes_end) return blocks;
    const int64_t block = static_cast<int64_t>(load_word(escape) >> 16) - first;
    return block < blocks ? block : blocks;
  }
  // Expands the block of an escape to the bf16 layout; returns the first escape of a later block.
  const uint8_t* expand_escaped(const uint8_t* escape, uint8_t* bf16) const {
    const uint32_t block = load_word(escape) >> 16;
    Set::template expand_fixed4<0>(tile, data + (static_cast<int64_t>(block) - first) * kBlockBytes, 1, bf16);
    for (; escape != escapes_end && load_word(escape) >> 16 == block; escape += 4) put_escape(load_word(escape), bf16);
    return escape;
  }
};
template <class Set, int kTokens>
constexpr int kRowsAtOnce<Fixed4Tile<Set>, kTokens> = Set::fixed4_rows_at_once(kTokens);

}  // namespace
}  // namespace odmoe::cpu
