// Bit-sliced weights (SliceMoE, sections 4.1 and 4.2): codes of h bits whose upper half, with scale and zero, is a usable weight of its
// own. odmoe/arithmetic.h has the values.
// A row in a plane: for each group of 32 columns its codes, 4 bytes for each bit (see below); in plane 0, the upper slice, then an FP16
// scale for each group, and then a zero (one byte) for each group.
// The codes of a group: of 4 bits: byte i (of 16) has column i in its low half, column 16 + i in its high half. Of 2 bits: byte i (of 8)
// has columns i, 8 + i, 16 + i and 24 + i, from its low bits on. Of 3 bits: their low two bits like codes of 2 bits, then 4 bytes: bit k of
// their 32 bits is the highest bit of column k.
#pragma once
#include <cstddef>
#include <cstdint>

#include "odmoe/formats.h"

namespace odmoe {

// How a product reads sliced weights. upper_amat is the paper's rule, upper_centred has half of its error.
enum class SliceReading : uint8_t { both, upper_centred, upper_amat };
inline constexpr size_t kSliceReadings = 3;

// Cuts a row of weights into its two slices (plane_row_bytes bytes each), which are overwritten. Returns null, or what is wrong with the
// weights: a value that is not finite, or a scale that FP16 cannot hold.
const char* slice_row(Split split, const float* weights, int64_t columns, uint8_t* upper, uint8_t* lower);

// Reads the weights of a row. Only SliceReading::both reads `lower`.
void slices_to_floats(Split split, SliceReading reading, const uint8_t* upper, const uint8_t* lower, int64_t columns, float* out);

// Returns null, or the fault of a row's slices: a scale that is negative or not finite, a zero above the highest code, a code behind the
// last column. A null plane is not checked.
const char* slices_fault(Split split, const uint8_t* upper, const uint8_t* lower, int64_t columns);

}  // namespace odmoe
