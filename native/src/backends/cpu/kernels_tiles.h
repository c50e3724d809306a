// Weights of one tile as vectors of FP32, one type for each layout of weight_layout.h.
#pragma once
#include "simd.h"

namespace odmoe::cpu {
namespace {

using Vector = Simd::Vector;
constexpr int kWidth = Simd::kWidth;
constexpr int kVectors = kLanes / kWidth;
constexpr int kPairs = kWidth >= 16 ? 1 : 16 / kWidth;
constexpr int64_t kBf16BlockBytes = kTileRows * kLanes * 2;

// Rows of a tile whose sums fit the registers together with some tokens.
template <class Tile, int kTokens>
constexpr int kRowsAtOnce = Simd::rows_at_once(kTokens);

// Weights of one tile, from some block of columns on. expand gives columns W*pair.. and 16 + W*pair.. of a row.
struct Bf16Tile {
  static constexpr int64_t kBlockBytes = kTileRows * kLanes * 2;
  const uint8_t* data;
  Bf16Tile(const uint8_t* tile, int64_t, int64_t block) : data(tile + block * kBlockBytes) {}
  ODMOE_INLINE void expand(int64_t block, int row, int pair, Vector& low, Vector& high) const {
    Simd::expand_bf16(data + block * kBlockBytes + row * 64 + pair * kWidth * 4, low, high);
  }
  // Moves some rows of a block to the first-level cache.
  template <int kRows>
  ODMOE_INLINE void fetch(int64_t block, int row0) const {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) __builtin_prefetch(data + block * kBlockBytes + (row0 + r) * 64);
  }
};

// One block of the bf16 layout, at any place in a tile.
struct Bf16Block {
  const uint8_t* data;
  ODMOE_INLINE void expand(int64_t, int row, int pair, Vector& low, Vector& high) const {
    Simd::expand_bf16(data + row * 64 + pair * kWidth * 4, low, high);
  }
};

struct Fp16Tile {
  static constexpr int64_t kBlockBytes = kTileRows * kLanes * 2;
  const uint8_t* data;
  Fp16Tile(const uint8_t* tile, int64_t, int64_t block) : data(tile + block * kBlockBytes) {}
  ODMOE_INLINE void expand(int64_t block, int row, int pair, Vector& low, Vector& high) const {
    const uint8_t* at = data + block * kBlockBytes + row * 64 + pair * kWidth * 2;
    low = Simd::load_fp16(at);
    high = Simd::load_fp16(at + 32);
  }
};

struct Fp32Tile {
  static constexpr int64_t kBlockBytes = kTileRows * kLanes * 4;
  const uint8_t* data;
  Fp32Tile(const uint8_t* tile, int64_t, int64_t block) : data(tile + block * kBlockBytes) {}
  ODMOE_INLINE void expand(int64_t block, int row, int pair, Vector& low, Vector& high) const {
    const float* at = reinterpret_cast<const float*>(data + block * kBlockBytes) + row * kLanes + pair * kWidth;
    low = Simd::load(at);
    high = Simd::load(at + 16);
  }
  template <int kRows>
  ODMOE_INLINE void fetch(int64_t block, int row0) const {
#pragma GCC unroll 8
    for (int line = 0; line < 2 * kRows; ++line) __builtin_prefetch(data + block * kBlockBytes + row0 * 128 + line * 64);
  }
};

struct Int8Tile {
  static constexpr int64_t kBlockBytes = kTileRows * kLanes;
  const uint8_t* data;
  Int8Tile(const uint8_t* tile, int64_t, int64_t block) : data(tile + block * kBlockBytes) {}
  ODMOE_INLINE void expand(int64_t block, int row, int pair, Vector& low, Vector& high) const {
    const uint8_t* at = data + block * kBlockBytes + row * kLanes + pair * kWidth;
    low = Simd::load_int8(at);
    high = Simd::load_int8(at + 16);
  }
};

struct Nf4Tile {
  static constexpr int64_t kBlockBytes = kNf4PairBytes / 2;  // on average: two blocks of columns share their scales
  const uint8_t* data;
  int64_t first;
  Nf4Tile(const uint8_t* tile, int64_t, int64_t block) : data(tile), first(block) {}
  ODMOE_INLINE void expand(int64_t block, int row, int pair, Vector& low, Vector& high) const {
    const int64_t at = first + block;
    const uint8_t* scales = data + (at >> 1) * kNf4PairBytes;
    const Vector scale = Simd::broadcast(reinterpret_cast<const float*>(scales)[row]);
    Simd::expand_nf4(scales + 16 + (at & 1) * 64 + row * 16 + pair * kWidth, low, high);
    low = Simd::multiply(low, scale);
    high = Simd::multiply(high, scale);
  }
};

// Rows of FP32 `step` floats apart (keys of one head).
struct Fp32Rows {
  static constexpr int64_t kBlockBytes = kLanes * 4;
  const float* data;
  int64_t step;
  ODMOE_INLINE void expand(int64_t block, int row, int pair, Vector& low, Vector& high) const {
    const float* at = data + row * step + block * kLanes + pair * kWidth;
    low = Simd::load(at);
    high = Simd::load(at + 16);
  }
};

}  // namespace
}  // namespace odmoe::cpu
