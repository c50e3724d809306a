// The layouts of matrices in the CUDA backend. A row's columns form steps: step j is columns 32 j ... 32 j + 31, one for each lane
// of a warp (the last is filled up with zeros). Steps form pieces; in a piece of V steps the lanes follow one another, each with
// its V values in the order of the steps, so that a lane's vector load serves its own partial sum. A row has as many main pieces as
// fit, in which a lane has 16 bytes. Behind them it has at most one piece of each smaller size: half as many steps, a quarter, ...
// 1.
//  bf16, fp16, fp32: the values (main pieces of 8, 8 and 4 steps), row after row
//  int8: bytes (main pieces of 16); one float scale per row behind the last row
//  nf4: 4 bits (main pieces of 32), the earlier of two steps in the low half of a byte (a piece of 1 step takes a byte a lane);
//       before them the row's scales, one float for every 2 steps, filled up to 16 bytes
//  mxfp4: codes as in nf4; before them the row's scales, one byte (E8M0) for every step, filled up to 16 bytes
//  fp8: bytes (main pieces of 16); before them the row's scales times 256, one float for every 4 steps, filled up to 16 bytes. E4M3
//       bits read as FP16 give a value 256 times smaller, and devices convert FP16
//  fixed4: BF16 with its exponent as a code of 4 bits. Rows form tiles of 4, which begin with a prefix: two tables of 16 bytes,
//       with the bits of each code's exponent e in the high byte of a BF16 (e >> 1) and in the low byte ((e & 1) << 7);
//       4 words: the end of each row's escapes; the escapes, 4 bytes each, by row and then by step. An escape is a weight whose
//       exponent is not among the tile's 16: step << 16 | lane << 8 | exponent (its code means nothing). Then each row's pieces
//       (main pieces of 16 steps): bytes of sign (bit 7) and mantissa, and behind them the codes, as in nf4.
//  sliced84, sliced63, sliced42: codes of 4, 3 or 2 bits (main pieces of 32): in a piece a lane's codes follow one another from the low
//       bits on, and lanes share a byte where a lane has less than one. Codes of 3 bits are a row of their low two bits, and, behind the
//       last of these rows, a row of their highest bits. The upper slice then has an FP16 scale for each step of each row, and a byte
//       for the zero of each; the lower slice has its codes alone. No part is filled up, so that slices need no more memory than in a
//       pack
#pragma once
#include <cstdint>

#include "device_code.h"
#include "odmoe/formats.h"

namespace odmoe::cuda {

inline constexpr int kFixed4TileRows = 4;
inline constexpr int kFixed4CodeCount = 16;
inline constexpr int kFixed4EndsOffset = 2 * kFixed4CodeCount;
inline constexpr int kFixed4EscapesOffset = kFixed4EndsOffset + 4 * kFixed4TileRows;
// An escape has 16 bits for the number of its step.
inline constexpr int64_t kFixed4MostColumns = int64_t{65536} * kLanes;

ODMOE_BOTH constexpr int main_steps(WeightFormat format) {
  switch (format) {
    case WeightFormat::fp32: return 4;
    case WeightFormat::int8:
    case WeightFormat::fp8:
    case WeightFormat::fixed4: return 16;
    case WeightFormat::nf4:
    case WeightFormat::mxfp4:
    case WeightFormat::sliced84:
    case WeightFormat::sliced63:
    case WeightFormat::sliced42: return 32;
    default: return 8;
  }
}

ODMOE_BOTH constexpr int steps_of(int64_t columns) { return static_cast<int>((columns + kLanes - 1) / kLanes); }

// Steps [first, first + steps) of a row.
struct Piece {
  int first;
  int steps;
};

ODMOE_BOTH constexpr int piece_count(int steps, int main) {
  int count = steps / main;
  for (int rest = steps % main; rest != 0; rest &= rest - 1) ++count;
  return count;
}

ODMOE_BOTH constexpr Piece piece_at(int steps, int main, int number) {
  const int full = steps / main;
  if (number < full) return {number * main, main};
  int first = full * main;
  int size = main / 2;
  for (int left = number - full;; size /= 2) {
    if ((steps & size) == 0) continue;
    if (left-- == 0) return {first, size};
    first += size;
  }
}

// The piece that contains a step.
ODMOE_BOTH constexpr Piece piece_of(int steps, int main, int step) {
  const int full = steps / main;
  if (step < full * main) return {step / main * main, main};
  int first = full * main;
  for (int size = main / 2;; size /= 2) {
    if ((steps & size) == 0) continue;
    if (step < first + size) return {first, size};
    first += size;
  }
}

// The index, among the row's values, of the piece's value at this lane and step (counted in the piece).
ODMOE_BOTH constexpr int64_t value_place(const Piece& piece, int lane, int step) {
  return int64_t{piece.first} * kLanes + lane * piece.steps + step;
}

// Bytes of codes that precede the lane's own in a piece.
ODMOE_BOTH constexpr int lane_code_bytes(int lane, int steps) { return lane * ((steps + 1) / 2); }

ODMOE_BOTH constexpr int64_t code_bytes(int steps) { return int64_t{(steps + 1) / 2} * kLanes; }

ODMOE_BOTH constexpr int64_t nf4_scale_bytes(int steps) { return int64_t{(steps + 7) / 8} * 16; }
ODMOE_BOTH constexpr int64_t mxfp4_scale_bytes(int steps) { return int64_t{(steps + 15) / 16} * 16; }
ODMOE_BOTH constexpr int64_t fp8_scale_bytes(int steps) { return int64_t{(steps + 15) / 16} * 16; }
inline constexpr int kFp8ScaleSteps = kFp8Block / kLanes;
inline constexpr float kFp8ScaleFactor = 256.0f;

// Number of escapes that a tile has room for: one for every 256 weights and a few more. The CPU backend's tiles have the same
// number, so that both backends can hold the same matrices.
ODMOE_BOTH constexpr int64_t fixed4_capacity(int64_t columns) {
  constexpr int64_t before_escapes = 2 * kFixed4CodeCount + 4;
  const int64_t prefix = (before_escapes + columns * kFixed4TileRows / 256 * 4 + 63) / 64 * 64;
  return (prefix - before_escapes) / 4;
}

ODMOE_BOTH constexpr int64_t fixed4_prefix_bytes(int64_t columns) {
  return (kFixed4EscapesOffset + fixed4_capacity(columns) * 4 + 15) / 16 * 16;
}

// The start of a fixed4 row's piece, counted from the start of the row (all pieces before it have an even number of steps).
ODMOE_BOTH constexpr int64_t fixed4_piece_offset(int first) { return int64_t{first} * (kLanes + kLanes / 2); }

// The parts of a slice of all `groups` groups (steps of rows), counted from its start; only an upper slice has the last two.
ODMOE_BOTH constexpr int64_t slice_high_bits_offset(int64_t groups) { return groups * (2 * kLanes / 8); }
ODMOE_BOTH constexpr int64_t slice_scales_offset(int bits, int64_t groups) { return groups * bits * (kLanes / 8); }
ODMOE_BOTH constexpr int64_t slice_zeros_offset(int bits, int64_t groups) { return slice_scales_offset(bits, groups) + groups * 2; }

// Bytes of one row, without an int8 row's scale and a fixed4 tile's prefix; not for slices, whose rows have several parts.
ODMOE_BOTH constexpr int64_t row_bytes(WeightFormat format, int64_t columns) {
  const int steps = steps_of(columns);
  switch (format) {
    case WeightFormat::fp32: return int64_t{steps} * kLanes * 4;
    case WeightFormat::int8: return int64_t{steps} * kLanes;
    case WeightFormat::nf4: return nf4_scale_bytes(steps) + code_bytes(steps);
    case WeightFormat::mxfp4: return mxfp4_scale_bytes(steps) + code_bytes(steps);
    case WeightFormat::fp8: return fp8_scale_bytes(steps) + int64_t{steps} * kLanes;
    case WeightFormat::fixed4: return int64_t{steps} * kLanes + code_bytes(steps);
    default: return int64_t{steps} * kLanes * 2;
  }
}

ODMOE_BOTH constexpr int64_t fixed4_tile_bytes(int64_t columns) {
  return fixed4_prefix_bytes(columns) + kFixed4TileRows * row_bytes(WeightFormat::fixed4, columns);
}

ODMOE_BOTH constexpr int64_t row_offset(WeightFormat format, int64_t columns, int64_t row) {
  if (format != WeightFormat::fixed4) return row * row_bytes(format, columns);
  return row / kFixed4TileRows * fixed4_tile_bytes(columns) + fixed4_prefix_bytes(columns) +
         row % kFixed4TileRows * row_bytes(format, columns);
}

// The offset of the row scales in an int8 matrix.
ODMOE_BOTH constexpr int64_t row_scales_offset(int64_t rows, int64_t columns) {
  return rows * row_bytes(WeightFormat::int8, columns);
}

// Bytes of a whole matrix; of a sliced one's upper slice.
uint64_t matrix_storage_bytes(WeightFormat format, int64_t rows, int64_t columns);
uint64_t lower_slice_storage_bytes(WeightFormat format, int64_t rows, int64_t columns);

}  // namespace odmoe::cuda
