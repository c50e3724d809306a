// The layout of matrices in block formats (odmoe/formats.h) in the CUDA backend. Steps and pieces are those of weight_layout.h. A
// matrix has parts, one behind the other, each with all rows:
//  low codes: the low 8, 4 or 2 bits of each code, in main pieces of 16 steps (8 bits) or 32: in a piece a lane's codes follow one
//       another from the low bits on, and lanes share a byte where a lane has less than one
//  high codes: the other 1 or 2 bits of each code, in the same way
//  scales: what the file has for every `scale_steps` steps, as its bytes: scales and minimums. A tile's rows share their scales
//  row factors: the matrix's FP32 scale (nvfp4), for every row, because a matrix may come from several
//  zero points: of grouped codes, as in the file
//  column order: of grouped codes, one for the matrix
// Codes are unsigned: those of q8_0 are stored with 128 added.
#pragma once
#include "weight_layout.h"

namespace odmoe::cuda {

// The forms of scales.
enum class Scaling : uint8_t {
  fp32,              // a factor
  e8m0,              // a power of two
  half,              // an FP16 factor
  half_pair,         // an FP16 factor and an FP16 addend
  bf16,              // a BF16 factor
  q2_k,              // 16 bytes of factors and minimums, and two FP16 numbers
  q3_k,              // 12 bytes of factors, and an FP16 number
  q4_k,              // two FP16 numbers, and 12 bytes of factors and minimums (q5_k too)
  q6_k,              // 16 bytes of factors, and an FP16 number
  iq4_xs,            // an FP16 number, and 6 bytes of factors
  nvfp4_multiplied,  // an E4M3 factor for each half of a step
  nvfp4_divided,
};

// A block format's parameters, as kernels take them.
struct BlockForm {
  int low_bits = 4;
  int high_bits = 0;
  Scaling scaling = Scaling::fp32;
  int scale_steps = 0;  // steps with the same scales; 0: the whole row
  int scale_bytes = 0;
  int tile_rows = 1;  // rows with the same scales
  bool row_factors = false;
  int zero = 0;       // the code of 0 where there are no zero points
  int zero_bits = 0;  // of each zero point; 0: there are none
  int order_bytes = 0;
};

// Throws nothing: of a format that is not a block format, the result means nothing.
BlockForm block_form(WeightFormat format);

ODMOE_BOTH constexpr int block_main_steps(int low_bits) { return low_bits == 8 ? 16 : 32; }

ODMOE_BOTH int scale_blocks(const BlockForm& form, int steps) {
  return form.scale_steps == 0 ? 1 : (steps + form.scale_steps - 1) / form.scale_steps;
}
ODMOE_BOTH int scale_row_bytes(const BlockForm& form, int steps) { return scale_blocks(form, steps) * form.scale_bytes; }
ODMOE_BOTH int zero_row_bytes(const BlockForm& form, int steps) { return (scale_blocks(form, steps) * form.zero_bits + 7) / 8; }

// Offsets of the parts; the low codes begin at 0.
struct BlockPlaces {
  int64_t high;
  int64_t scales;
  int64_t factors;
  int64_t zeros;
  int64_t order;
};

ODMOE_BOTH BlockPlaces block_places(const BlockForm& form, int64_t rows, int steps) {
  BlockPlaces places;
  places.high = rows * steps * (form.low_bits * kLanes / 8);
  places.scales = places.high + rows * steps * (form.high_bits * kLanes / 8);
  const int64_t scale_rows = (rows + form.tile_rows - 1) / form.tile_rows;
  places.factors = (places.scales + scale_rows * scale_row_bytes(form, steps) + 3) / 4 * 4;
  places.zeros = places.factors + (form.row_factors ? rows * 4 : 0);
  places.order = (places.zeros + rows * zero_row_bytes(form, steps) + 3) / 4 * 4;
  return places;
}

uint64_t block_storage_bytes(WeightFormat format, int64_t rows, int64_t columns);

}  // namespace odmoe::cuda
