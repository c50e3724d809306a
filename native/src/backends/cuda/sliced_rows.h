// A reader of rows of sliced weights, for products (weight_rows.h). A step is a group: all lanes need its scale and zero, but each for
// one weight only. So one lane prepares them for all, as a factor and an addend, and gives these to the others in shared memory:
//  kSliced            true: row() takes both slices, and expand() takes Shared
//  Shared<V>          factors and addends of V steps of a row; the lanes meet before value() reads them, and before they are written again
// The bits of a code are put into the mantissa of a power of two, the offset, which makes offset + code. Then
// weight = (offset + code) * factor + addend. The addend takes the offset away; product, addend and sum are exact, because offset and
// zero together have at most 13 bits and a scale has 11.
#pragma once
#include <type_traits>

#include "odmoe/slices.h"
#include "weight_rows.h"

#if defined(__CUDACC__) || defined(ODMOE_SIMULATED_CUDA)
namespace odmoe::cuda {

// V codes of kWidth bits of a lane, from the lowest bits on. Above them there may be other lanes' codes.
template <int kWidth, int V>
using CodeVector = LoadedBytes<(kWidth * V < 8 ? 1 : kWidth * V / 8)>;

template <int kWidth, int V, bool kOnce>
__device__ __forceinline__ CodeVector<kWidth, V> load_codes(const uint8_t* row, const Place& place, int lane) {
  const auto bit = static_cast<uint32_t>(place.first * kLanes + lane * place.steps + place.skipped) * kWidth;
  CodeVector<kWidth, V> codes = load_bytes<(kWidth * V < 8 ? 1 : kWidth * V / 8), kOnce>(row + bit / 8);
  if constexpr (kWidth * V < 8) codes.words[0] >>= bit % 8;
  return codes;
}

// Moves bit `from` of a word to place `to`.
__device__ __forceinline__ uint32_t moved(uint32_t word, int from, int to) {
  return from <= to ? word << (to - from) : word >> (from - to);
}

// A lane's codes of a slice. Codes of 3 bits have their highest bit apart.
template <int kBits, int V>
struct SliceCodes {
  CodeVector<kBits == 4 ? 4 : 2, V> low;

  template <bool kOnce>
  __device__ __forceinline__ void load(const uint8_t* slice, uint32_t group, int64_t, const Place& place, int lane) {
    low = load_codes<kBits, V, kOnce>(slice + int64_t{group} * (kBits * kLanes / 8), place, lane);
  }
  // The code of a step with its lowest bit at `to`.
  __device__ __forceinline__ uint32_t at(int step, int to) const {
    const int bit = step * kBits % 32;
    // Steps that share a shift: 4 of 2 bits.
    const int together = kBits == 2 ? bit % 8 : 0;
    return moved(low.words[step * kBits / 32], bit - together, to - together) & ((1u << kBits) - 1) << to;
  }
};

template <int V>
struct SliceCodes<3, V> {
  CodeVector<2, V> low;
  CodeVector<1, V> high;

  template <bool kOnce>
  __device__ __forceinline__ void load(const uint8_t* slice, uint32_t group, int64_t groups, const Place& place, int lane) {
    low = load_codes<2, V, kOnce>(slice + int64_t{group} * (2 * kLanes / 8), place, lane);
    high = load_codes<1, V, kOnce>(slice + slice_high_bits_offset(groups) + int64_t{group} * (kLanes / 8), place, lane);
  }
  __device__ __forceinline__ uint32_t at(int step, int to) const {
    return (moved(low.words[step / 16], step % 16 * 2, to) & 3u << to) | (moved(high.words[0], step, to + 2) & 4u << to);
  }
};

// Codes of both slices, joined, with the place of their lowest bit: for 8 and 4 bits two codes of each word of the upper slice and of
// the lower one change places, so that the four bits (two bits) of a code become neighbours.
template <int kBits, int V>
struct JoinedCodes {
  static constexpr int kWords = (V * kBits + 31) / 32;
  uint32_t earlier[kWords];  // of even steps
  uint32_t later[kWords];

  __device__ __forceinline__ void join(const SliceCodes<kBits, V>& upper, const SliceCodes<kBits, V>& lower) {
    constexpr uint32_t kLow = kBits == 4 ? 0x0f0f0f0fu : 0x33333333u;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const uint32_t above = upper.low.words[i];
      const uint32_t below = lower.low.words[i];
      earlier[i] = (above << kBits & ~kLow) | (below & kLow);
      later[i] = (above & ~kLow) | (below >> kBits & kLow);
    }
  }
  __device__ __forceinline__ uint32_t at(int step, int to) const {
    const uint32_t word = step % 2 == 0 ? earlier[step * kBits / 32] : later[step * kBits / 32];
    const int bit = step / 2 * 2 * kBits % 32;
    const int together = kBits == 2 ? bit % 8 : 0;
    return moved(word, bit - together, to - together) & ((1u << 2 * kBits) - 1) << to;
  }
};

template <int V>
struct JoinedCodes<3, V> {
  SliceCodes<3, V> upper;
  SliceCodes<3, V> lower;
  __device__ __forceinline__ void join(const SliceCodes<3, V>& above, const SliceCodes<3, V>& below) {
    upper = above;
    lower = below;
  }
  __device__ __forceinline__ uint32_t at(int step, int to) const { return upper.at(step, to + 3) | lower.at(step, to); }
};

// kBoth: both slices are read; else the upper one alone.
template <int kBits, bool kBoth>
struct SlicedRows {
  static constexpr int kMain = 32;
  static constexpr bool kRowScales = false;
  static constexpr bool kSliced = true;
  static constexpr bool kBlocks = false;
  using Table = NoTable;

  template <int V>
  struct alignas(16) Shared {
    float2 steps[V < 2 ? 2 : V];  // factor, addend
  };
  // Rows of a matrix differ only in their first group.
  struct Row {
    const uint8_t* upper;
    const uint8_t* lower;
    int64_t groups;  // of the matrix
    uint32_t group;
    SliceReading reading;
  };
  struct Nothing {};
  template <int V>
  struct Vector {
    SliceCodes<kBits, V> upper;
    std::conditional_t<kBoth, SliceCodes<kBits, V>, Nothing> lower;
    uint32_t scale;  // of step `lane`
    uint32_t zero;
  };
  template <int V>
  struct Values {
    std::conditional_t<kBoth, JoinedCodes<kBits, V>, SliceCodes<kBits, V>> codes;
    const float2* steps;
  };

  __device__ static __forceinline__ Row row(const uint8_t* upper, const uint8_t* lower, SliceReading reading, int rows, int columns,
                                            int number) {
    const int steps = steps_of(columns);
    return {upper, lower, int64_t{rows} * steps, static_cast<uint32_t>(number) * static_cast<uint32_t>(steps), reading};
  }
  template <int kRows>
  __device__ static __forceinline__ void start(Row (&)[kRows]) {}
  template <int V, bool kOnce>
  __device__ static __forceinline__ Vector<V> load(const Row& row, const Place& place, int lane) {
    Vector<V> vector;
    vector.upper.template load<kOnce>(row.upper, row.group, row.groups, place, lane);
    if constexpr (kBoth) vector.lower.template load<kOnce>(row.lower, row.group, row.groups, place, lane);
    vector.scale = 0;
    vector.zero = 0;
    if (V == kWarp || lane < V) {
      const int64_t group = int64_t{row.group} + place.first + place.skipped + lane;
      vector.scale = loaded<unsigned short, kOnce>(row.upper + slice_scales_offset(kBits, row.groups) + group * 2);
      vector.zero = loaded<unsigned char, kOnce>(row.upper + slice_zeros_offset(kBits, row.groups) + group);
    }
    return vector;
  }
  template <int V, class Shared>
  __device__ static __forceinline__ Values<V> expand(const Row& row, const Vector<V>& vector, Shared& shared, int lane) {
    if (V == kWarp || lane < V) shared.steps[lane] = factor_and_addend(row.reading, vector.scale, vector.zero, lane);
    Values<V> values;
    values.steps = shared.steps;
    if constexpr (kBoth) {
      values.codes.join(vector.upper, vector.lower);
    } else {
      values.codes = vector.upper;
    }
    return values;
  }
  template <int V>
  __device__ static __forceinline__ float value(const Values<V>& values, int step, const float*) {
    const float code = float_of_bits(values.codes.at(step, place_of(step)) | bits_of_offset(step));
    // Two steps are read at a time.
    const float4 two = reinterpret_cast<const float4*>(values.steps)[step / 2];
    return step % 2 == 0 ? fused(code, two.x, two.y) : fused(code, two.z, two.w);
  }

 private:
  static constexpr uint32_t kStep = 1u << kBits;

  // The place of a code's lowest bit in the mantissa. Steps that share a shift have different places.
  __device__ static __forceinline__ int place_of(int step) {
    if constexpr (kBits == 2 && kBoth) return 12 + step / 2 % 2 * 4;
    if constexpr (kBits == 2) return 14 + step % 4 * 2;
    return kBits == 4 && kBoth ? 12 : 16;
  }
  // The power of two whose mantissa has a 1 at this place.
  __device__ static __forceinline__ uint32_t bits_of_offset(int step) {
    return static_cast<uint32_t>(127 + 23 - place_of(step)) << 23;
  }
  __device__ static __forceinline__ float2 factor_and_addend(SliceReading reading, uint32_t half, uint32_t zero, int step) {
    const float scale = float_of_half(half);
    const float offset = float_of_bits(bits_of_offset(step));
    if constexpr (kBoth) return {scale, scale * (-offset - static_cast<float>(zero))};
    if (reading == SliceReading::upper_amat) zero &= ~(kStep - 1);
    const float middle = reading == SliceReading::upper_centred ? static_cast<float>(kStep - 1) * 0.5f : 0.0f;
    constexpr float kFactor = kStep;
    return {scale * kFactor, scale * (middle - static_cast<float>(zero) - offset * kFactor)};
  }
};

}  // namespace odmoe::cuda
#endif
