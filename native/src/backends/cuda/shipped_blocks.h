// The codes of block formats where files have them (odmoe/formats.h), and the bytes of their scales.
#pragma once
#include "device_code.h"
#include "odmoe/formats.h"

namespace odmoe::cuda {

// A GGUF block: its columns and bytes, where its codes and their high bits begin, and where its scales are: one range, or for q2_k
// two, of which the second has the last 4 bytes.
struct ShippedBlock {
  int columns;
  int bytes;
  int codes;
  int high;
  int scales;
};

template <Split kSplit>
ODMOE_BOTH constexpr ShippedBlock shipped_block() {
  switch (kSplit) {
    case Split::q4_0: return {32, 18, 2, 0, 0};
    case Split::q4_1: return {32, 20, 4, 0, 0};
    case Split::q5_0: return {32, 22, 6, 2, 0};
    case Split::q5_1: return {32, 24, 8, 4, 0};
    case Split::q8_0: return {32, 34, 2, 0, 0};
    case Split::q2_k: return {256, 84, 16, 0, 0};
    case Split::q3_k: return {256, 110, 32, 0, 96};
    case Split::q4_k: return {256, 144, 16, 0, 0};
    case Split::q5_k: return {256, 176, 48, 16, 0};
    case Split::q6_k: return {256, 210, 0, 128, 192};
    case Split::iq4_nl: return {32, 18, 2, 0, 0};
    case Split::iq4_xs: return {256, 136, 8, 0, 0};
    default: return {0, 0, 0, 0, 0};
  }
}

template <Split kSplit>
inline constexpr bool kIsGguf = block_shape(kSplit).columns != 0;

template <Split kSplit>
inline constexpr bool kHasNibbles =
    kSplit == Split::nvfp4_multiplied || kSplit == Split::nvfp4_divided || kSplit == Split::grouped4;

// Bytes of a row of codes, and of a row of the other plane.
template <Split kSplit>
ODMOE_BOTH int64_t shipped_code_row_bytes(int64_t columns) {
  if constexpr (kIsGguf<kSplit>) {
    constexpr ShippedBlock block = shipped_block<kSplit>();
    return (columns + block.columns - 1) / block.columns * block.bytes;
  }
  return kHasNibbles<kSplit> ? (columns + 1) / 2 : columns;
}

// Code i of a block of GGUF, unsigned.
template <Split kSplit>
ODMOE_BOTH uint32_t block_code(const uint8_t* block, int i) {
  constexpr ShippedBlock shape = shipped_block<kSplit>();
  const uint8_t* const codes = block + shape.codes;
  const uint8_t* const high = block + shape.high;
  if constexpr (kSplit == Split::q8_0) {
    return codes[i] ^ 0x80u;
  } else if constexpr (kSplit == Split::q2_k) {
    return codes[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3u;
  } else if constexpr (kSplit == Split::q3_k) {
    return (codes[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3u) | (high[i % 32] >> i / 32 & 1u) << 2;
  } else if constexpr (kSplit == Split::q4_k) {
    return codes[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15u;
  } else if constexpr (kSplit == Split::q5_k) {
    return (codes[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15u) | (high[i % 32] >> i / 32 & 1u) << 4;
  } else if constexpr (kSplit == Split::q6_k) {
    const int quarter = i % 128 / 32;
    const uint32_t low = codes[i / 128 * 64 + quarter % 2 * 32 + i % 32] >> quarter / 2 * 4 & 15u;
    return low | (high[i / 128 * 32 + i % 32] >> quarter * 2 & 3u) << 4;
  } else {
    // Halves of bytes in groups of 32 codes.
    const uint32_t low = codes[i / 32 * 16 + i % 16] >> i % 32 / 16 * 4 & 15u;
    if constexpr (kSplit == Split::q5_0 || kSplit == Split::q5_1) return low | (high[i / 8] >> i % 8 & 1u) << 4;
    return low;
  }
}

// The code of a column; `row` is the row's codes.
template <Split kSplit>
ODMOE_BOTH uint32_t shipped_code(const uint8_t* row, int column) {
  if constexpr (kIsGguf<kSplit>) {
    constexpr ShippedBlock block = shipped_block<kSplit>();
    return block_code<kSplit>(row + column / block.columns * block.bytes, column % block.columns);
  } else if constexpr (kHasNibbles<kSplit>) {
    return row[column / 2] >> column % 2 * 4 & 15u;
  } else {
    return row[column];
  }
}

// Byte i of a GGUF row's scales, of which each block has `bytes`.
template <Split kSplit>
ODMOE_BOTH uint8_t shipped_scale_byte(const uint8_t* row, int i, int bytes) {
  constexpr ShippedBlock block = shipped_block<kSplit>();
  const int place = i % bytes;
  constexpr int kSecond = kSplit == Split::q2_k ? block.bytes - 20 : 0;
  return row[i / bytes * block.bytes + block.scales + place + (place < 16 ? 0 : kSecond)];
}

}  // namespace odmoe::cuda
