// mxfp4 tiles (weight_layout.h): reads them, and turns them into blocks of the bf16 layout.
#pragma once
#include "kernels_tiles.h"
#include "odmoe/quantized_values.h"

namespace odmoe::cpu {
namespace {

// The 16 weights of a scale: the low bytes of the BF16 values, then the high bytes; 0 for codes without a value.
struct Mxfp4Bytes {
  uint8_t bytes[32];
};

struct Mxfp4Table {
  Mxfp4Bytes scales[256];
};

constexpr Mxfp4Table make_mxfp4_table() {
  Mxfp4Table table{};
  for (int scale = 0; scale < 255; ++scale) {
    for (int code = 0; code < 16; ++code) {
      if ((scale == 254 && (code & 7) > 3) || (scale == 253 && (code & 7) > 5)) continue;
      const uint32_t bits = __builtin_bit_cast(uint32_t, kMxfp4Values[code] * kE8m0Values[scale]);
      table.scales[scale].bytes[code] = static_cast<uint8_t>(bits >> 16);
      table.scales[scale].bytes[16 + code] = static_cast<uint8_t>(bits >> 24);
    }
  }
  return table;
}

alignas(64) constexpr Mxfp4Table kMxfp4Table = make_mxfp4_table();

// For instruction sets that look up weights in a register of FP32 values.
template <class Set>
struct Mxfp4Tile {
  static constexpr int64_t kBlockBytes = kMxfp4BlockBytes + kTileRows;  // with the scales
  const uint8_t* scales;
  const uint8_t* codes;
  Mxfp4Tile(const uint8_t* tile, int64_t columns, int64_t block)
      : scales(tile + block * kTileRows), codes(tile + mxfp4_scale_bytes(columns) + block * kMxfp4BlockBytes) {}
  ODMOE_INLINE void expand(int64_t block, int row, int, Vector& low, Vector& high) const {
    const float scale = kE8m0Values.values[scales[block * kTileRows + row]];
    Set::expand_mxfp4_row(codes + block * kMxfp4BlockBytes + row * 16, scale, low, high);
  }
};

// Turns a tile's blocks into the bf16 layout.
class Mxfp4Reader {
 public:
  Mxfp4Reader() = default;
  Mxfp4Reader(const uint8_t* tile, int64_t columns) : tile_(tile), codes_(tile + mxfp4_scale_bytes(columns)) {}

  template <int64_t kAhead>
  ODMOE_INLINE void expand(int64_t first, int64_t count, uint8_t* bf16) {
    const uint8_t* scales = tile_ + first * kTileRows;
    const uint8_t* codes = codes_ + first * kMxfp4BlockBytes;
    const uint8_t* ahead = tile_ + first * (kMxfp4BlockBytes + kTileRows) + kAhead;
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (kAhead != 0) {
        __builtin_prefetch(ahead);
        __builtin_prefetch(ahead + 64);
        ahead += kMxfp4BlockBytes + kTileRows;
      }
#pragma GCC unroll 4
      for (int row = 0; row < kTileRows; ++row) {
        const uint8_t scale = scales[row];
        Simd::expand_mxfp4(codes + row * 16, kE8m0Values.values[scale], kMxfp4Table.scales[scale].bytes, bf16 + row * 64);
      }
      scales += kTileRows;
      codes += kMxfp4BlockBytes;
      bf16 += kTileRows * kLanes * 2;
    }
  }

 private:
  const uint8_t* tile_ = nullptr;
  const uint8_t* codes_ = nullptr;
};

}  // namespace
}  // namespace odmoe::cpu
