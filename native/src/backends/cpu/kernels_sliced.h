// Sliced tiles (weight_layout.h): the scale and zero of each row and block become a step and a base, so that weight = code * step + base.
// Both products and their sum are exact (odmoe/arithmetic.h), and so is the fused operation.
#pragma once
#include "kernels_accumulate.h"
#include "odmoe/slices.h"

namespace odmoe::cpu {
namespace {

// Codes of some bits of a row's block as FP32, columns W*pair.. and 16 + W*pair...
template <int kBits>
ODMOE_INLINE void expand_codes(const uint8_t* group, int pair, Vector& low, Vector& high) {
  if constexpr (kBits == 4) {
    Simd::expand_codes4(group + pair * kWidth, low, high);
  } else {
    Simd::template expand_codes2<kBits == 3>(group, pair, low, high);
  }
}

// The weights code * step + base of codes of some bits.
template <class Set, int kBits>
ODMOE_INLINE void expand_steps(const uint8_t* group, int pair, float step, float base, Vector& low, Vector& high) {
  const Vector steps = Simd::broadcast(step);
  const Vector bases = Simd::broadcast(base);
  if constexpr (kBits == 4 && Set::kLooksUpCodes) {
    Set::look_up_codes4(group + pair * kWidth, steps, bases, low, high);
  } else {
    expand_codes<kBits>(group, pair, low, high);
    low = Simd::fma(low, steps, bases);
    high = Simd::fma(high, steps, bases);
  }
}

// Rows of a matrix as slices.
struct SlicedRows {
  const uint8_t* codes;
  const uint8_t* lower;
  const uint8_t* scales;
  const uint8_t* zeros;
  int64_t blocks;
  int bits;
  SliceReading reading;

  SlicedRows(WeightFormat format, int64_t rows, int64_t columns, const uint8_t* upper, const uint8_t* lower_slice,
             SliceReading reading_of)
      : codes(upper),
        lower(lower_slice),
        scales(upper + scales_offset(format, rows, columns)),
        zeros(scales + 2 * row_tiles(rows) * kTileRows * column_blocks(columns)),
        blocks(column_blocks(columns)),
        bits(slice_bits(format)),
        reading(reading_of) {}

  // The number of a tile's block among all blocks' rows.
  ODMOE_INLINE int64_t place(int64_t tile, int64_t block) const { return (tile * blocks + block) * kTileRows; }

  // Steps and bases of `count` blocks of a tile, row by row in each block. It reads up to a vector behind the last one, and writes as far.
  ODMOE_INLINE void prepare(int64_t tile, int64_t block, int64_t count, float* steps, float* bases) const {
    const int64_t first = place(tile, block);
    const float factor = static_cast<float>(1 << bits);
    const Vector step = Simd::broadcast(reading == SliceReading::both ? 1.0f : factor);
    const Vector unit = Simd::broadcast(reading == SliceReading::upper_amat ? factor : 1.0f);
    const Vector middle = Simd::broadcast(reading == SliceReading::upper_centred ? (factor - 1.0f) * 0.5f : 0.0f);
    const int shift = reading == SliceReading::upper_amat ? bits : 0;
    for (int64_t i = 0; i < count * kTileRows; i += kWidth) {
      const Vector scale = Simd::load_fp16(scales + 2 * (first + i));
      const Vector zero = Simd::load_uint8(zeros + first + i, shift);
      Simd::store(steps + i, Simd::multiply(scale, step));
      Simd::store(bases + i, Simd::multiply(Simd::multiply(scale, unit), Simd::subtract(middle, zero)));
    }
  }
};

// Some blocks of a tile with their steps and bases.
template <int kBits, bool kBoth>
struct SlicedTile {
  static constexpr int64_t kRowBytes = kBits * kLanes / 8;
  const uint8_t* upper;
  const uint8_t* lower;
  const float* steps;
  const float* bases;
  ODMOE_INLINE void expand(int64_t block, int row, int pair, Vector& low, Vector& high) const {
    const int64_t at = block * kTileRows + row;
    // One line is prefetched with each block: many prefetches at once would wait for one another.
    if (row == 0 && pair == 0) {
      __builtin_prefetch(upper + at * kRowBytes + kStreamAhead);
      if constexpr (kBoth) __builtin_prefetch(lower + at * kRowBytes + kStreamAhead);
    }
    const uint8_t* const codes = upper + at * kRowBytes;
    if constexpr (!kBoth) {
      expand_steps<Simd, kBits>(codes, pair, steps[at], bases[at], low, high);
    } else {
      constexpr float kStep = 1 << kBits;
      Vector below_low, below_high;
      expand_codes<kBits>(codes, pair, low, high);
      expand_codes<kBits>(lower + at * kRowBytes, pair, below_low, below_high);
      low = Simd::fma(low, Simd::broadcast(kStep), below_low);
      high = Simd::fma(high, Simd::broadcast(kStep), below_high);
      const Vector step = Simd::broadcast(steps[at]);
      const Vector base = Simd::broadcast(bases[at]);
      low = Simd::fma(low, step, base);
      high = Simd::fma(high, step, base);
    }
  }
};

// Floats of the steps, and of the bases, of a run.
constexpr int64_t kRunSteps = kRunBlocks * kTileRows + kWidth;

// The tiles of a product, a run of blocks at a time.
template <int kBits, bool kBoth>
struct SlicedStream {
  using Tile = SlicedTile<kBits, kBoth>;
  SlicedRows rows;
  alignas(64) float steps[kRunSteps];
  alignas(64) float bases[kRunSteps];

  explicit SlicedStream(const MatmulJob& job) : rows(job.format, job.rows, job.columns, job.weights, job.lower, job.reading) {}

  ODMOE_INLINE Tile at(int64_t tile, int64_t block, int64_t blocks) {
    const int64_t first = rows.place(tile, block);
    const uint8_t* const upper = rows.codes + first * Tile::kRowBytes;
    const uint8_t* const lower = kBoth ? rows.lower + first * Tile::kRowBytes : nullptr;
    rows.prepare(tile, block, blocks, steps, bases);
    return {upper, lower, steps, bases};
  }
};

// Writes rows of slices, of either plane or both, to their places.
template <Split kSplit>
void write_sliced_rows(Matrix& matrix, int64_t first_row, int64_t rows, const uint8_t* const* planes) {
  constexpr int64_t kCodeBytes = slice_code_bytes(slice_bits(kSplit));
  const int64_t blocks = column_blocks(matrix.columns);
  uint8_t* const storage = static_cast<uint8_t*>(matrix.storage.data);
  uint8_t* const scales = storage + scales_offset(matrix.format, matrix.rows, matrix.columns);
  uint8_t* const zeros = scales + 2 * row_tiles(matrix.rows) * kTileRows * blocks;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = first_row + i;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t to = (row / kTileRows * blocks + block) * kTileRows + row % kTileRows;
      if (planes[0] != nullptr) {
        const uint8_t* const from = planes[0] + i * plane_row_bytes(kSplit, 0, matrix.columns);
        __builtin_memcpy(storage + to * kCodeBytes, from + block * kCodeBytes, kCodeBytes);
        __builtin_memcpy(scales + 2 * to, from + blocks * kCodeBytes + 2 * block, 2);
        zeros[to] = from[blocks * (kCodeBytes + 2) + block];
      }
      if (planes[1] != nullptr) {
        const uint8_t* const from = planes[1] + i * plane_row_bytes(kSplit, 1, matrix.columns);
        __builtin_memcpy(static_cast<uint8_t*>(matrix.lower.data) + to * kCodeBytes, from + block * kCodeBytes, kCodeBytes);
      }
    }
  }
}

}  // namespace
}  // namespace odmoe::cpu
