// Functions with which the lanes of a warp combine their values.
#pragma once
#include "device_code.h"

#if defined(__CUDACC__) || defined(ODMOE_SIMULATED_CUDA)
namespace odmoe::cuda {

// The tree over the 32 partial sums of a warp's lanes: 16 apart, then 8, 4, 2, 1. Every lane gets the result.
__device__ __forceinline__ float fold_lanes(float partial) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2) partial = partial + __shfl_xor_sync(kFullWarp, partial, apart);
  return partial;
}

// The trees over kCount sums at once: at every level a lane gives half of its sums to the lane `kApart` away and takes that
// one's part of the others, so that kCount trees cost 31 exchanges. Lane l gets the sum number l / (32 / kCount). An addition's
// operands may be exchanged, so the result is fold_lanes' to the bit.
template <int kCount, int kApart = kWarp / 2>
__device__ __forceinline__ float fold_transposed(const float (&sums)[kCount], int lane) {
  if constexpr (kApart == 0) {
    return sums[0];
  } else if constexpr (kCount == 1) {
    const float folded[1] = {sums[0] + __shfl_xor_sync(kFullWarp, sums[0], kApart)};
    return fold_transposed<1, kApart / 2>(folded, lane);
  } else {
    const bool upper = (lane & kApart) != 0;
    float folded[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float given = upper ? sums[i] : sums[i + kCount / 2];
      const float kept = upper ? sums[i + kCount / 2] : sums[i];
      folded[i] = kept + __shfl_xor_sync(kFullWarp, given, kApart);
    }
    return fold_transposed<kCount / 2, kApart / 2>(folded, lane);
  }
}

// A NaN on the left side is never the greater one.
__device__ __forceinline__ float greater(float a, float b) { return a > b ? a : b; }

template <int kAmong>
__device__ __forceinline__ float greatest_of_lanes(float value) {
  for (int apart = kAmong / 2; apart > 0; apart /= 2) {
    value = greater(__shfl_xor_sync(kFullWarp, value, apart), value);
  }
  return value;
}

}  // namespace odmoe::cuda
#endif
