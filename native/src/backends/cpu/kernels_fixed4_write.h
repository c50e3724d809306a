// Makes fixed4 tiles (weight_layout.h) from planes of bytes.
#pragma once
#include "kernels_fixed4.h"

namespace odmoe::cpu {
namespace {

// A tile's four rows as two planes of bytes, in the order of columns; a row takes whole blocks.
struct Fixed4Planes {
  uint8_t* exponents;
  uint8_t* sign_mantissas;
  int64_t row_bytes;

  Fixed4Planes(uint8_t* scratch, int64_t columns)
      : exponents(scratch),
        sign_mantissas(scratch + kTileRows * column_blocks(columns) * kLanes),
        row_bytes(column_blocks(columns) * kLanes) {}
};

// Reads the first `rows` rows of a tile.
void read_fixed4_planes(const Fixed4Planes& planes, const uint8_t* tile, int64_t columns, int rows) {
  Fixed4Reader reader(tile, columns);
  for (int64_t block = 0; block < column_blocks(columns); ++block) {
    alignas(64) uint16_t bits[kTileRows][kLanes];
    reader.expand<0>(block, 1, reinterpret_cast<uint8_t*>(bits));
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < kLanes; ++i) {
        const int64_t to = r * planes.row_bytes + block * kLanes + i;
        const uint32_t word = bits[r][i % 16 * 2 + i / 16];
        planes.exponents[to] = static_cast<uint8_t>(word >> 7);
        planes.sign_mantissas[to] = static_cast<uint8_t>((word >> 8 & 0x80u) | (word & 0x7fu));
      }
    }
  }
}

// The 16 exponents that occur most often (of equally frequent ones the lower), and the number of weights with another exponent.
struct Fixed4Codes {
  uint8_t exponents[kFixed4Codes];
  int64_t escapes;
  // A code whose exponent is not infinity's, for places without a weight: times zero it gives the zero that a padded column must
  // give.
  uint8_t padding;
};

Fixed4Codes choose_fixed4_codes(const Fixed4Planes& planes, int64_t columns, int rows) {
  // Several counters for each exponent, because incrementing one counter twice in a row waits for memory.
  constexpr int kTables = 4;
  uint32_t counts[kTables][256] = {};
  for (int r = 0; r < rows; ++r) {
    const uint8_t* const row = planes.exponents + r * planes.row_bytes;
    int64_t i = 0;
    for (; i + kTables <= columns; i += kTables) {
      for (int t = 0; t < kTables; ++t) ++counts[t][row[i + t]];
    }
    for (; i < columns; ++i) ++counts[0][row[i]];
  }
  uint8_t present[256];
  int present_count = 0;
  for (int e = 0; e < 256; ++e) {
    counts[0][e] += counts[1][e] + counts[2][e] + counts[3][e];
    if (counts[0][e] != 0) present[present_count++] = static_cast<uint8_t>(e);
  }
  Fixed4Codes codes = {};
  codes.escapes = rows * columns;
  for (int c = 0; c < kFixed4Codes && c < present_count; ++c) {
    int best = 0;
    for (int p = 1; p < present_count; ++p) {
      if (counts[0][present[p]] > counts[0][present[best]]) best = p;
    }
    codes.exponents[c] = present[best];
    codes.escapes -= counts[0][present[best]];
    counts[0][present[best]] = 0;
  }
  codes.padding = codes.exponents[codes.exponents[0] == 255 ? 1 : 0];
  return codes;
}

// 32 bytes of two rows, one after the other for each 16 bytes of a block (weight_layout.h): half h of a block from rows 2 h, 2 h + 1.
ODMOE_INLINE void interleave_fixed4(uint8_t (&out)[2 * kLanes], const uint8_t* even_row, const uint8_t* odd_row) {
  const uint8_t* const rows[2] = {even_row, odd_row};
  for (int r = 0; r < 2; ++r) {
    uint8_t words[kLanes];
    for (int i = 0; i < 16; ++i) {
      words[2 * i] = rows[r][i];
      words[2 * i + 1] = rows[r][16 + i];
    }
    for (int q = 0; q < 4; ++q) __builtin_memcpy(out + 16 * q + 8 * r, words + 8 * q, 8);
  }
}

// Finds the codes of half a block, 255 where the exponent has no code; returns whether any is 255.
ODMOE_INLINE bool find_fixed4_codes(uint8_t (&out)[2 * kLanes], const uint8_t (&exponents)[2 * kLanes],
                                    const uint8_t (&table)[kFixed4Codes]) {
  for (int i = 0; i < 2 * kLanes; ++i) out[i] = 255;
  for (int c = kFixed4Codes - 1; c >= 0; --c) {
    for (int i = 0; i < 2 * kLanes; ++i) out[i] = exponents[i] == table[c] ? static_cast<uint8_t>(c) : out[i];
  }
  uint8_t any = 0;
  for (int i = 0; i < 2 * kLanes; ++i) any |= out[i];
  return any > 15;
}

// Makes a tile of `rows` rows; the planes' padding is overwritten. False if the tile has no room for all escapes.
bool write_fixed4_tile(uint8_t* tile, const Fixed4Planes& planes, int64_t columns, int rows) {
  const Fixed4Codes codes = choose_fixed4_codes(planes, columns, rows);
  if (codes.escapes > fixed4_capacity(columns)) return false;
  for (int r = 0; r < kTileRows; ++r) {
    for (int64_t i = r < rows ? columns : 0; i < planes.row_bytes; ++i) {
      planes.exponents[r * planes.row_bytes + i] = codes.padding;
      planes.sign_mantissas[r * planes.row_bytes + i] = 0;
    }
  }
  const int64_t prefix = fixed4_prefix_bytes(columns);
  for (int64_t i = 0; i < prefix; ++i) tile[i] = 0;
  for (int c = 0; c < kFixed4Codes; ++c) {
    tile[c] = codes.exponents[c] >> 1;
    tile[kFixed4Codes + c] = static_cast<uint8_t>(codes.exponents[c] << 7);
  }
  store_word(tile + kFixed4CountOffset, static_cast<uint32_t>(codes.escapes));
  uint8_t* escape = tile + kFixed4EscapesOffset;
  for (int64_t block = 0; block < column_blocks(columns); ++block) {
    uint8_t* const out = tile + prefix + block * kFixed4BlockBytes;
    uint8_t half_codes[2][2 * kLanes];
    for (int half = 0; half < 2; ++half) {
      const int64_t even = 2 * half * planes.row_bytes + block * kLanes;
      const int64_t odd = even + planes.row_bytes;
      uint8_t exponents[2 * kLanes];
      uint8_t sign_mantissas[2 * kLanes];
      interleave_fixed4(exponents, planes.exponents + even, planes.exponents + odd);
      interleave_fixed4(sign_mantissas, planes.sign_mantissas + even, planes.sign_mantissas + odd);
      __builtin_memcpy(out + kFixed4CodeBytes + half * 2 * kLanes, sign_mantissas, sizeof sign_mantissas);
      if (!find_fixed4_codes(half_codes[half], exponents, codes.exponents)) continue;
      for (int i = 0; i < 2 * kLanes; ++i) {
        if (half_codes[half][i] <= 15) continue;
        half_codes[half][i] = 0;
        const int place = (2 * half + (i >> 3 & 1)) * kLanes + (i >> 4) * 8 + (i & 7);
        store_word(escape, static_cast<uint32_t>(block) << 16 | static_cast<uint32_t>(place) << 8 | exponents[i]);
        escape += 4;
      }
    }
    for (int i = 0; i < 2 * kLanes; ++i) {
      out[i] = static_cast<uint8_t>(half_codes[0][i] | half_codes[1][i] << 4);
    }
  }
  return true;
}

}  // namespace
}  // namespace odmoe::cpu
