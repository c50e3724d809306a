// Readers of rows of block formats (block_layout.h), for products and look-ups; the protocol is weight_rows.h's, and as in
// sliced_rows.h one lane prepares a step's scales for all lanes:
//  kBlocks            true: row() takes the format's parameters, and expand() takes Shared
//  Shared<V>          what is prepared for V steps of a row; the lanes meet before value() reads it, and before it is written again
// A Form has the codes' bits and the arithmetic of some formats:
//  kHalves            true: the two halves of a step have scales of their own
//  Entry              what is prepared for a step or half a step: a float or a float2
//  Constant           what all weights of a row share
//  load(), entry()    a step's scales as stored, and prepared
//  weight()           the weight of a code
// Each weight is the exact value rounded once (odmoe/block_values.h).
#pragma once
#include "block_layout.h"
#include "sliced_rows.h"

#if defined(__CUDACC__) || defined(ODMOE_SIMULATED_CUDA)
namespace odmoe::cuda {

// Bits that make a float of 2^23 + code.
inline constexpr uint32_t kCodeBits = 0x4b000000u;
inline constexpr float kCodeOffset = 8388608.0f;

struct BlockRow {
  const uint8_t* storage;
  const BlockForm* form;
  BlockPlaces places;
  int steps;
  uint32_t number;

  __device__ __forceinline__ const uint8_t* scales() const {
    return storage + places.scales + int64_t{number / static_cast<uint32_t>(form->tile_rows)} * scale_row_bytes(*form, steps);
  }
};

// A step's scales as they are stored.
struct RawScales {
  uint32_t first;
  uint32_t second;
};

__device__ __forceinline__ uint32_t byte_at(const uint8_t* from) { return loaded<unsigned char, false>(from); }
__device__ __forceinline__ uint32_t half_at(const uint8_t* from) { return loaded<unsigned short, false>(from); }
__device__ __forceinline__ uint32_t word_at(const uint8_t* from) { return loaded<unsigned int, false>(from); }

// Factor (.first) and zero point (.second) of formats with one factor for a step or more.
__device__ __forceinline__ RawScales load_factor(const BlockRow& row, int step) {
  const BlockForm& form = *row.form;
  const int group = form.scale_steps == 0 ? 0 : form.scale_steps == 1 ? step : step / form.scale_steps;
  const uint8_t* const scale = row.scales() + group * form.scale_bytes;
  RawScales raw;
  raw.first = form.scale_bytes == 4 ? word_at(scale) : form.scale_bytes == 2 ? half_at(scale) : byte_at(scale);
  raw.second = static_cast<uint32_t>(form.zero);
  if (form.zero_bits != 0) {
    const uint8_t* const zeros = row.storage + row.places.zeros + int64_t{row.number} * zero_row_bytes(form, row.steps);
    raw.second = form.zero_bits == 8 ? byte_at(zeros + group) : byte_at(zeros + group / 2) >> group % 2 * 4 & 15u;
  }
  return raw;
}

__device__ __forceinline__ float factor_of(Scaling scaling, uint32_t bits) {
  switch (scaling) {
    case Scaling::fp32: return float_of_bits(bits);
    case Scaling::e8m0: return e8m0_value(bits);
    case Scaling::bf16: return float_of_bf16(bits);
    default: return float_of_half(bits);
  }
}

struct NoConstant {};

// Formats with one factor for a step.
struct OneFactor {
  static constexpr bool kHalves = false;
  static constexpr int kHighBits = 0;
  using Table = NoTable;
  using Constant = NoConstant;
  __device__ static __forceinline__ Constant constant(const BlockRow&) { return {}; }
  __device__ static __forceinline__ RawScales load(const BlockRow& row, int step) { return load_factor(row, step); }
};

// fp8_row, fp8_tile, mxfp8. E4M3 bits read as FP16 give a value 256 times smaller.
struct E4m3Form : OneFactor {
  static constexpr int kLowBits = 8;
  using Entry = float;
  __device__ static __forceinline__ Entry entry(const BlockRow& row, const RawScales& raw, int, int) {
    return factor_of(row.form->scaling, raw.first) * kFp8ScaleFactor;
  }
  __device__ static __forceinline__ float weight(uint32_t code, Entry factor, const Constant&, const float*) {
    return e4m3_small_value(code) * factor;
  }
};

// (code - zero) * factor: q4_0, q8_0, grouped4, grouped8.
template <int kBits>
struct ZeroForm : OneFactor {
  static constexpr int kLowBits = kBits;
  using Entry = float2;  // factor, offset and zero
  __device__ static __forceinline__ Entry entry(const BlockRow& row, const RawScales& raw, int, int) {
    return {factor_of(row.form->scaling, raw.first), float_of_bits(kCodeBits | raw.second)};
  }
  __device__ static __forceinline__ float weight(uint32_t code, Entry entry, const Constant&, const float*) {
    return (float_of_bits(kCodeBits | code) - entry.y) * entry.x;
  }
};

// Values of llama.cpp's kvalues_iq4nl (ggml-common.h, v0.5.0).
struct Iq4Table {
  static constexpr int kSize = 16;
  __device__ static __forceinline__ float at(uint32_t code) {
    // -127 -104 -83 -65 -49 -35 -22 -10, 1 13 25 38 53 69 89 113, the first in the lowest byte.
    const uint64_t eight = code < 8 ? 0xf6eaddcfbfad9881ull : 0x7159453526190d01ull;
    return static_cast<float>(static_cast<int8_t>(eight >> code % 8 * 8 & 0xff));
  }
  __device__ static void fill(float* table) {
    if (threadIdx.x < kSize) table[threadIdx.x] = at(threadIdx.x);
    __syncthreads();
  }
};

// iq4_nl, iq4_xs.
struct Iq4Form : OneFactor {
  static constexpr int kLowBits = 4;
  using Entry = float;
  using Table = Iq4Table;
  __device__ static __forceinline__ RawScales load(const BlockRow& row, int step) {
    if (row.form->scaling != Scaling::iq4_xs) return load_factor(row, step);
    const uint8_t* const block = row.scales() + step / 8 * 8;
    return {word_at(block), byte_at(block + 4 + step % 8 / 2)};
  }
  __device__ static __forceinline__ Entry entry(const BlockRow& row, const RawScales& raw, int step, int) {
    if (row.form->scaling != Scaling::iq4_xs) return factor_of(row.form->scaling, raw.first);
    const uint32_t scale = (raw.second >> step % 2 * 4 & 15u) | (raw.first >> (16 + step % 8 * 2) & 3u) << 4;
    return float_of_half(raw.first & 0xffffu) * (float_of_bits(kCodeBits | scale) - (kCodeOffset + 32.0f));
  }
  __device__ static __forceinline__ float weight(uint32_t code, Entry factor, const Constant&, const float* table) {
    return table[code] * factor;
  }
};

// Factor and minimum of 6 bits each for a step of q4_k and q5_k: three bytes and the two FP16 numbers.
__device__ __forceinline__ RawScales load_q4_k(const uint8_t* block, int group) {
  const uint8_t* const bytes = block + 4;
  const int earlier = group < 4 ? group : group - 4;
  return {word_at(block), byte_at(bytes + group) | byte_at(bytes + group + 4) << 8 | byte_at(bytes + earlier) << 16};
}
__device__ __forceinline__ float2 factor_and_addend(uint32_t halves, uint32_t factor, uint32_t minimum) {
  const float low = float_of_half(halves >> 16) * (float_of_bits(kCodeBits | minimum) - kCodeOffset);
  return {float_of_half(halves & 0xffffu) * (float_of_bits(kCodeBits | factor) - kCodeOffset), -low};
}
__device__ __forceinline__ float2 q4_k_entry(const RawScales& raw, int group) {
  const uint32_t own = raw.second & 0xffu;
  const uint32_t later = raw.second >> 8 & 0xffu;
  const uint32_t earlier = raw.second >> 16;
  if (group < 4) return factor_and_addend(raw.first, own & 63u, later & 63u);
  return factor_and_addend(raw.first, (later & 15u) | (earlier >> 6) << 4, later >> 4 | (own >> 6) << 4);
}

// code * factor + addend: q4_1, q4_k; with kBits 5 also q5_1, q5_k and, whose codes have a zero and no addend, q5_0.
template <int kBits>
struct AddendForm {
  static constexpr bool kHalves = false;
  static constexpr int kLowBits = 4;
  static constexpr int kHighBits = kBits - 4;
  using Entry = float2;
  using Table = NoTable;
  struct Constant {
    float offset;
  };
  __device__ static __forceinline__ Constant constant(const BlockRow& row) {
    return {kBits == 4 ? kCodeOffset : float_of_bits(kCodeBits | static_cast<uint32_t>(row.form->zero))};
  }
  __device__ static __forceinline__ RawScales load(const BlockRow& row, int step) {
    if (row.form->scaling == Scaling::q4_k) return load_q4_k(row.scales() + step / 8 * 16, step % 8);
    return load_factor(row, step);
  }
  __device__ static __forceinline__ Entry entry(const BlockRow& row, const RawScales& raw, int step, int) {
    if (row.form->scaling == Scaling::q4_k) return q4_k_entry(raw, step % 8);
    // A negative zero leaves every product as it is.
    const bool pair = row.form->scaling == Scaling::half_pair;
    return {float_of_half(raw.first & 0xffffu), pair ? float_of_half(raw.first >> 16) : -0.0f};
  }
  __device__ static __forceinline__ float weight(uint32_t code, Entry entry, const Constant& constant, const float*) {
    return fused(float_of_bits(kCodeBits | code) - constant.offset, entry.x, entry.y);
  }
};

struct Q2kForm {
  static constexpr bool kHalves = true;
  static constexpr int kLowBits = 2;
  static constexpr int kHighBits = 0;
  using Entry = float2;
  using Table = NoTable;
  using Constant = NoConstant;
  __device__ static __forceinline__ Constant constant(const BlockRow&) { return {}; }
  __device__ static __forceinline__ RawScales load(const BlockRow& row, int step) {
    const uint8_t* const block = row.scales() + step / 8 * 20;
    return {word_at(block + 16), half_at(block + step % 8 * 2)};
  }
  __device__ static __forceinline__ Entry entry(const BlockRow&, const RawScales& raw, int, int half) {
    const uint32_t both = raw.second >> half * 8;
    return factor_and_addend(raw.first, both & 15u, both >> 4 & 15u);
  }
  __device__ static __forceinline__ float weight(uint32_t code, Entry entry, const Constant&, const float*) {
    return fused(float_of_bits(kCodeBits | code) - kCodeOffset, entry.x, entry.y);
  }
};

struct Q3kForm {
  static constexpr bool kHalves = true;
  static constexpr int kLowBits = 2;
  static constexpr int kHighBits = 1;
  using Entry = float;
  using Table = NoTable;
  using Constant = NoConstant;
  __device__ static __forceinline__ Constant constant(const BlockRow&) { return {}; }
  __device__ static __forceinline__ RawScales load(const BlockRow& row, int step) {
    const uint8_t* const block = row.scales() + step / 8 * 14;
    const int group = step % 8 * 2;
    return {half_at(block + 12), half_at(block + group % 8) | half_at(block + 8 + group % 4) << 16};
  }
  __device__ static __forceinline__ Entry entry(const BlockRow&, const RawScales& raw, int step, int half) {
    const int group = step % 8 * 2 + half;
    const uint32_t low = raw.second >> (half * 8 + group / 8 * 4) & 15u;
    const uint32_t high = raw.second >> (16 + half * 8 + group / 4 * 2) & 3u;
    return float_of_half(raw.first) * (float_of_bits(kCodeBits | low | high << 4) - (kCodeOffset + 32.0f));
  }
  __device__ static __forceinline__ float weight(uint32_t code, Entry factor, const Constant&, const float*) {
    return (float_of_bits(kCodeBits | code) - (kCodeOffset + 4.0f)) * factor;
  }
};

struct Q6kForm {
  static constexpr bool kHalves = true;
  static constexpr int kLowBits = 4;
  static constexpr int kHighBits = 2;
  using Entry = float;
  using Table = NoTable;
  using Constant = NoConstant;
  __device__ static __forceinline__ Constant constant(const BlockRow&) { return {}; }
  __device__ static __forceinline__ RawScales load(const BlockRow& row, int step) {
    const uint8_t* const block = row.scales() + step / 8 * 18;
    return {half_at(block + 16), half_at(block + step % 8 * 2)};
  }
  __device__ static __forceinline__ Entry entry(const BlockRow&, const RawScales& raw, int, int half) {
    return float_of_half(raw.first) * float_of_int8(raw.second, half);
  }
  __device__ static __forceinline__ float weight(uint32_t code, Entry factor, const Constant&, const float*) {
    return (float_of_bits(kCodeBits | code) - (kCodeOffset + 32.0f)) * factor;
  }
};

// nvfp4_multiplied, nvfp4_divided: code * scale is exact.
struct Nvfp4Form {
  static constexpr bool kHalves = true;
  static constexpr int kLowBits = 4;
  static constexpr int kHighBits = 0;
  using Entry = float;
  using Table = Mxfp4Table;
  struct Constant {
    float matrix_scale;
    bool divided;
  };
  __device__ static __forceinline__ Constant constant(const BlockRow& row) {
    const uint8_t* const factor = row.storage + row.places.factors + int64_t{row.number} * 4;
    return {float_of_bits(word_at(factor)), row.form->scaling == Scaling::nvfp4_divided};
  }
  __device__ static __forceinline__ RawScales load(const BlockRow& row, int step) { return {half_at(row.scales() + step * 2), 0}; }
  __device__ static __forceinline__ Entry entry(const BlockRow&, const RawScales& raw, int, int half) {
    return e4m3_small_value(raw.first >> half * 8 & 0xffu) * kFp8ScaleFactor;
  }
  __device__ static __forceinline__ float weight(uint32_t code, Entry factor, const Constant& constant, const float* table) {
    const float value = table[code] * factor;
    return constant.divided ? divided(value, constant.matrix_scale) : value * constant.matrix_scale;
  }
};

// The entries of two steps are read at a time.
__device__ __forceinline__ float entry_at(const float* entries, int step) {
  const float2 two = reinterpret_cast<const float2*>(entries)[step / 2];
  return step % 2 == 0 ? two.x : two.y;
}
__device__ __forceinline__ float2 entry_at(const float2* entries, int step) {
  const float4 two = reinterpret_cast<const float4*>(entries)[step / 2];
  return step % 2 == 0 ? make_float2(two.x, two.y) : make_float2(two.z, two.w);
}

template <class Form>
struct BlockRows {
  static constexpr int kMain = block_main_steps(Form::kLowBits);
  static constexpr bool kRowScales = false;
  static constexpr bool kSliced = false;
  static constexpr bool kBlocks = true;
  using Table = typename Form::Table;
  using Entry = typename Form::Entry;
  using Row = BlockRow;

  // Entries of the second half begin this far behind the first ones: in other banks of the shared memory.
  template <int V>
  static constexpr int kHalfEntries = (V < 2 ? 2 : V) + 2;
  template <int V>
  struct alignas(16) Shared {
    Entry entries[Form::kHalves ? 2 * kHalfEntries<V> : V < 2 ? 2 : V];
  };
  struct Nothing {};
  template <int V>
  struct Vector {
    CodeVector<Form::kLowBits, V> low;
    std::conditional_t<Form::kHighBits != 0, CodeVector<(Form::kHighBits != 0 ? Form::kHighBits : 1), V>, Nothing> high;
    RawScales scales;  // of step `lane`
  };
  template <int V>
  struct Values {
    decltype(Vector<V>::low) low;
    decltype(Vector<V>::high) high;
    const Entry* entries;
    typename Form::Constant constant;
  };

  __device__ static __forceinline__ Row row(const BlockForm& form, const uint8_t* storage, int rows, int columns, int number) {
    const int steps = steps_of(columns);
    return {storage, &form, block_places(form, rows, steps), steps, static_cast<uint32_t>(number)};
  }
  template <int kRows>
  __device__ static __forceinline__ void start(Row (&)[kRows]) {}
  template <int V, bool kOnce>
  __device__ static __forceinline__ Vector<V> load(const Row& row, const Place& place, int lane) {
    const int64_t group = int64_t{row.number} * row.steps;
    Vector<V> vector;
    vector.low = load_codes<Form::kLowBits, V, kOnce>(row.storage + group * (Form::kLowBits * kLanes / 8), place, lane);
    if constexpr (Form::kHighBits != 0) {
      const uint8_t* const high = row.storage + row.places.high + group * (Form::kHighBits * kLanes / 8);
      vector.high = load_codes<Form::kHighBits, V, kOnce>(high, place, lane);
    }
    vector.scales = {0, 0};
    if (V == kWarp || lane < V) vector.scales = Form::load(row, place.first + place.skipped + lane);
    return vector;
  }
  template <int V, class SharedEntries>
  __device__ static __forceinline__ Values<V> expand(const Row& row, const Vector<V>& vector, const Place& place,
                                                     SharedEntries& shared, int lane) {
    if (V == kWarp || lane < V) {
      const int step = place.first + place.skipped + lane;
      shared.entries[lane] = Form::entry(row, vector.scales, step, 0);
      if constexpr (Form::kHalves) shared.entries[kHalfEntries<V> + lane] = Form::entry(row, vector.scales, step, 1);
    }
    const Entry* const entries = shared.entries + (Form::kHalves ? lane / 16 * kHalfEntries<V> : 0);
    return {vector.low, vector.high, entries, Form::constant(row)};
  }
  template <int V>
  __device__ static __forceinline__ float value(const Values<V>& values, int step, const float* table) {
    uint32_t code = bits_at<Form::kLowBits>(values.low.words, step);
    if constexpr (Form::kHighBits != 0) code |= bits_at<Form::kHighBits>(values.high.words, step) << Form::kLowBits;
    return Form::weight(code, entry_at(values.entries, step), values.constant, table);
  }

 private:
  template <int kBits>
  __device__ static __forceinline__ uint32_t bits_at(const uint32_t* words, int step) {
    return words[step * kBits / 32] >> step * kBits % 32 & ((1u << kBits) - 1);
  }
};

}  // namespace odmoe::cuda
#endif
