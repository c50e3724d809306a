// Norm, rotary embedding and sums of experts' outputs, one element at a time, and arrays read and written 16 bytes at
// a time.
#pragma once
#include "device_code.h"
#include "odmoe/operators.h"

namespace odmoe::cuda {

// The divisor of a norm, for a vector with this sum of squares.
ODMOE_BOTH float norm_root(float squares, float divisor, float epsilon) { return square_root(divided(squares, divisor) + epsilon); }

// Rotates a pair (a, b) of the rotary embedding in place.
ODMOE_BOTH void rotate_pair(float& a, float& b, float cos, float sin) {
  const float turned = fused(-b, sin, a * cos);
  b = fused(a, sin, b * cos);
  a = turned;
}

// Adds an expert's output to the weighted sum of a token; rank 0 begins the sum.
ODMOE_BOTH float weighted_sum(int rank, float weight, float output, float sum) {
  return rank == 0 ? weight * output : fused(weight, output, sum);
}

// kWidth adjacent floats; 4 floats need one access and 16-byte alignment.
template <int kWidth>
struct Pack {
  float values[kWidth];
};

template <int kWidth>
ODMOE_BOTH Pack<kWidth> load_pack(const float* from) {
  Pack<kWidth> pack;
  if (kWidth == 4) {
    const float4 quad = *reinterpret_cast<const float4*>(from);
    pack.values[0] = quad.x;
    pack.values[1 % kWidth] = quad.y;
    pack.values[2 % kWidth] = quad.z;
    pack.values[3 % kWidth] = quad.w;
  } else {
    for (int i = 0; i < kWidth; ++i) pack.values[i] = from[i];
  }
  return pack;
}

template <int kWidth>
ODMOE_BOTH void store_pack(float* to, const Pack<kWidth>& pack) {
  if (kWidth == 4) {
    *reinterpret_cast<float4*>(to) =
        make_float4(pack.values[0], pack.values[1 % kWidth], pack.values[2 % kWidth], pack.values[3 % kWidth]);
  } else {
    for (int i = 0; i < kWidth; ++i) to[i] = pack.values[i];
  }
}

ODMOE_BOTH float* vector_at(const Vectors& vectors, int64_t row, int64_t number) {
  return vectors.first + row * vectors.row_stride + number * vectors.vector_stride;
}

// True if rows that begin at `begin` and are `floats_apart` apart can be accessed four floats at a time.
inline bool takes_quads(const float* begin, int64_t floats_apart) {
  return reinterpret_cast<uintptr_t>(begin) % sizeof(float4) == 0 && floats_apart % 4 == 0;
}

inline bool takes_quads(const Vectors& vectors) {
  return takes_quads(vectors.first, vectors.row_stride) && (vectors.vectors == 1 || vectors.vector_stride % 4 == 0) &&
         vectors.size % 4 == 0;
}

// The rows from `first` on.
inline Vectors rows_from(Vectors vectors, int64_t first, int rows) {
  vectors.first += first * vectors.row_stride;
  vectors.rows = rows;
  return vectors;
}

}  // namespace odmoe::cuda
