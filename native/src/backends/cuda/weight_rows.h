// Readers of weight rows for kernels (weight_layout.h): a lane's vector of a piece, and its values one after the other. For every
// format:
//  kMain              steps of a main piece
//  Row                a row's address and the state for reading it; row() waits for no memory, start() does, and must come between
//                     the first load() and the first expand()
//  Vector<V>          V of the lane's values of a piece, as stored in memory; load() reads them
//  kSliced, Shared    sliced_rows.h
//  kBlocks            block_rows.h
//  kRowScales         true: finished dots are multiplied by their row's scale
//  Values<V>          the same in registers for value(); expand() makes them; for fixed4 rows it must go from the first step to the
//                     last
// A Place is V steps of a piece: all of it, or V steps from `skipped` on (a multiple of V) in a piece of more steps.
#pragma once
#include "fixed4_lookup.h"
#include "weight_layout.h"
#include "weight_values.h"

#if defined(__CUDACC__) || defined(ODMOE_SIMULATED_CUDA)
namespace odmoe::cuda {

struct Place {
  int first;    // the piece's first step
  int steps;    // steps of the piece
  int skipped;  // steps of the piece before this place
};

template <int kBytes>
struct LoadedBytes {
  uint32_t words[kBytes < 4 ? 1 : kBytes / 4];
};

// kOnce: no thread will read these bytes again soon.
template <class Word, bool kOnce>
__device__ __forceinline__ Word loaded(const uint8_t* from) {
  const Word* const at = reinterpret_cast<const Word*>(from);
  return kOnce ? __ldcs(at) : __ldg(at);
}

template <int kBytes, bool kOnce>
__device__ __forceinline__ LoadedBytes<kBytes> load_bytes(const uint8_t* from) {
  LoadedBytes<kBytes> bytes;
  if constexpr (kBytes == 1) {
    bytes.words[0] = loaded<unsigned char, kOnce>(from);
  } else if constexpr (kBytes == 2) {
    bytes.words[0] = loaded<unsigned short, kOnce>(from);
  } else if constexpr (kBytes == 4) {
    bytes.words[0] = loaded<unsigned int, kOnce>(from);
  } else if constexpr (kBytes == 8) {
    const uint2 both = loaded<uint2, kOnce>(from);
    bytes.words[0] = both.x;
    bytes.words[1] = both.y;
  } else {
    const uint4 four = loaded<uint4, kOnce>(from);
    bytes.words[0] = four.x;
    bytes.words[1] = four.y;
    bytes.words[2] = four.z;
    bytes.words[3] = four.w;
  }
  return bytes;
}

// A table that a block of threads shares, for formats that need one; nf4 needs its values.
struct NoTable {
  static constexpr int kSize = 1;
  __device__ static void fill(float*) {}
};

// A lane of these formats needs nothing from other lanes.
struct LoneLanes {
  static constexpr bool kSliced = false;
  static constexpr bool kBlocks = false;
  template <int kSteps>
  struct Shared {};
};

// Formats that are arrays of values.
template <WeightFormat kFormat, int kValueBytes>
struct PlainRows : LoneLanes {
  static constexpr int kMain = main_steps(kFormat);
  static constexpr bool kRowScales = kFormat == WeightFormat::int8;
  using Table = NoTable;
  // All rows of a warp have the same storage, and an offset needs half the registers of a pointer.
  struct Row {
    const uint8_t* storage;
    uint32_t offset;  // in 16 bytes
    __device__ __forceinline__ const uint8_t* data() const { return storage + uint64_t{offset} * 16; }
  };
  template <int V>
  using Vector = LoadedBytes<V * kValueBytes>;
  template <int V>
  using Values = Vector<V>;

  __device__ static __forceinline__ Row row(const uint8_t* storage, int64_t columns, int64_t number) {
    return {storage, static_cast<uint32_t>(number * (row_bytes(kFormat, columns) / 16))};
  }
  template <int kRows>
  __device__ static __forceinline__ void start(Row (&)[kRows]) {}
  template <int V, bool kOnce>
  __device__ static __forceinline__ Vector<V> load(const Row& row, const Place& place, int lane) {
    const int at = place.first * kLanes + lane * place.steps + place.skipped;
    return load_bytes<V * kValueBytes, kOnce>(row.data() + int64_t{at} * kValueBytes);
  }
  template <int V>
  __device__ static __forceinline__ Values<V> expand(Row&, const Vector<V>& vector, const Place&, int) {
    return vector;
  }
};

struct Bf16Rows : PlainRows<WeightFormat::bf16, 2> {
  template <int V>
  __device__ static __forceinline__ float value(const Values<V>& values, int step, const float*) {
    const uint32_t word = values.words[step / 2];
    return float_of_bits(step % 2 == 0 ? word << 16 : word & 0xffff0000u);
  }
};

struct Fp16Rows : PlainRows<WeightFormat::fp16, 2> {
  template <int V>
  __device__ static __forceinline__ float value(const Values<V>& values, int step, const float*) {
    const uint32_t word = values.words[step / 2];
    return float_of_half(step % 2 == 0 ? word & 0xffffu : word >> 16);
  }
};

struct Fp32Rows : PlainRows<WeightFormat::fp32, 4> {
  template <int V>
  __device__ static __forceinline__ float value(const Values<V>& values, int step, const float*) {
    return float_of_bits(values.words[step]);
  }
};

struct Int8Rows : PlainRows<WeightFormat::int8, 1> {
  template <int V>
  __device__ static __forceinline__ float value(const Values<V>& values, int step, const float*) {
    return float_of_int8(values.words[step / 4], step % 4);
  }
};

struct Nf4Table {
  static constexpr int kSize = 16;
  __device__ static void fill(float* table) {
    if (threadIdx.x < kSize) table[threadIdx.x] = nf4_value(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
};

struct Nf4Rows : LoneLanes {
  static constexpr int kMain = main_steps(WeightFormat::nf4);
  static constexpr bool kRowScales = false;
  using Table = Nf4Table;
  struct Row {
    const uint8_t* data;
    int scale_bytes;
  };
  template <int V>
  struct Vector {
    LoadedBytes<(V + 1) / 2> codes;
    float scales[(V + 1) / 2];
  };
  template <int V>
  using Values = Vector<V>;

  __device__ static __forceinline__ Row row(const uint8_t* storage, int64_t columns, int64_t number) {
    return {storage + number * row_bytes(WeightFormat::nf4, columns), static_cast<int>(nf4_scale_bytes(steps_of(columns)))};
  }
  template <int kRows>
  __device__ static __forceinline__ void start(Row (&)[kRows]) {}
  template <int V, bool kOnce>
  __device__ static __forceinline__ Vector<V> load(const Row& row, const Place& place, int lane) {
    constexpr int kScales = (V + 1) / 2;
    constexpr int kAtOnce = kScales < 4 ? kScales : 4;
    Vector<V> vector;
    const int codes = row.scale_bytes + place.first * (kLanes / 2) + lane_code_bytes(lane, place.steps) + place.skipped / 2;
    vector.codes = load_bytes<kScales, kOnce>(row.data + codes);
    const uint8_t* const scales = row.data + (place.first + place.skipped) / 2 * 4;
#pragma unroll
    for (int i = 0; i < kScales; i += kAtOnce) {
      const LoadedBytes<4 * kAtOnce> some = load_bytes<4 * kAtOnce, false>(scales + 4 * i);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) vector.scales[i + j] = float_of_bits(some.words[j]);
    }
    return vector;
  }
  template <int V>
  __device__ static __forceinline__ Values<V> expand(Row&, const Vector<V>& vector, const Place&, int) {
    return vector;
  }
  template <int V>
  __device__ static __forceinline__ float value(const Values<V>& values, int step, const float* table) {
    return table[values.codes.words[step / 8] >> (step % 8 * 4) & 15u] * values.scales[step / 2];
  }
};

// Like nf4's table, with other values.
struct Mxfp4Table {
  static constexpr int kSize = 16;
  __device__ static void fill(float* table) {
    if (threadIdx.x < kSize) table[threadIdx.x] = mxfp4_value(threadIdx.x);
    __syncthreads();
  }
};

struct Mxfp4Rows : LoneLanes {
  static constexpr int kMain = main_steps(WeightFormat::mxfp4);
  static constexpr bool kRowScales = false;
  using Table = Mxfp4Table;
  struct Row {
    const uint8_t* data;
    int scale_bytes;
  };
  template <int V>
  struct Vector {
    LoadedBytes<(V + 1) / 2> codes;
    uint32_t scales[(V + 3) / 4];  // four bytes each
  };
  template <int V>
  using Values = Vector<V>;

  __device__ static __forceinline__ Row row(const uint8_t* storage, int64_t columns, int64_t number) {
    return {storage + number * row_bytes(WeightFormat::mxfp4, columns), static_cast<int>(mxfp4_scale_bytes(steps_of(columns)))};
  }
  template <int kRows>
  __device__ static __forceinline__ void start(Row (&)[kRows]) {}
  template <int V, bool kOnce>
  __device__ static __forceinline__ Vector<V> load(const Row& row, const Place& place, int lane) {
    constexpr int kAtOnce = V < 16 ? V : 16;
    Vector<V> vector;
    const int codes = row.scale_bytes + place.first * (kLanes / 2) + lane_code_bytes(lane, place.steps) + place.skipped / 2;
    vector.codes = load_bytes<(V + 1) / 2, kOnce>(row.data + codes);
    const uint8_t* const scales = row.data + place.first + place.skipped;
#pragma unroll
    for (int i = 0; i < V; i += kAtOnce) {
      const LoadedBytes<kAtOnce> some = load_bytes<kAtOnce, false>(scales + i);
#pragma unroll
      for (int j = 0; j < (kAtOnce + 3) / 4; ++j) vector.scales[i / 4 + j] = some.words[j];
    }
    return vector;
  }
  template <int V>
  __device__ static __forceinline__ Values<V> expand(Row&, const Vector<V>& vector, const Place&, int) {
    return vector;
  }
  template <int V>
  __device__ static __forceinline__ float value(const Values<V>& values, int step, const float* table) {
    const float scale = e8m0_value(values.scales[step / 4] >> (step % 4 * 8) & 0xffu);
    return table[values.codes.words[step / 8] >> (step % 8 * 4) & 15u] * scale;
  }
};

struct Fp8Rows : LoneLanes {
  static constexpr int kMain = main_steps(WeightFormat::fp8);
  static constexpr bool kRowScales = false;
  using Table = NoTable;
  struct Row {
    const uint8_t* data;
    int scale_bytes;
  };
  template <int V>
  struct Vector {
    LoadedBytes<V> codes;
    float scales[(V + 3) / 4];
  };
  template <int V>
  using Values = Vector<V>;

  __device__ static __forceinline__ Row row(const uint8_t* storage, int64_t columns, int64_t number) {
    return {storage + number * row_bytes(WeightFormat::fp8, columns), static_cast<int>(fp8_scale_bytes(steps_of(columns)))};
  }
  template <int kRows>
  __device__ static __forceinline__ void start(Row (&)[kRows]) {}
  template <int V, bool kOnce>
  __device__ static __forceinline__ Vector<V> load(const Row& row, const Place& place, int lane) {
    constexpr int kScales = (V + 3) / 4;
    Vector<V> vector;
    const int codes = row.scale_bytes + place.first * kLanes + lane * place.steps + place.skipped;
    vector.codes = load_bytes<V, kOnce>(row.data + codes);
    const LoadedBytes<4 * kScales> scales =
        load_bytes<4 * kScales, false>(row.data + (place.first + place.skipped) / kFp8ScaleSteps * 4);
#pragma unroll
    for (int i = 0; i < kScales; ++i) vector.scales[i] = float_of_bits(scales.words[i]);
    return vector;
  }
  template <int V>
  __device__ static __forceinline__ Values<V> expand(Row&, const Vector<V>& vector, const Place&, int) {
    return vector;
  }
  template <int V>
  __device__ static __forceinline__ float value(const Values<V>& values, int step, const float*) {
    return e4m3_small_value(values.codes.words[step / 4] >> (step % 4 * 8) & 0xffu) * values.scales[step / kFp8ScaleSteps];
  }
};

struct Fixed4Rows : LoneLanes {
  static constexpr int kMain = main_steps(WeightFormat::fixed4);
  static constexpr bool kRowScales = false;
  using Table = NoTable;
  struct Row {
    const uint8_t* data;
    Fixed4Tables tables;
    const uint32_t* escapes;  // escapes of the tile
    uint32_t escape;          // the first escape that has not been loaded
    uint32_t escapes_end;
    uint32_t next;       // the first escape that has not been applied, or kNoEscape
    uint32_t following;  // the escape behind it, or kNoEscape
  };
  template <int V>
  struct Vector {
    LoadedBytes<V> sign_mantissas;
    LoadedBytes<(V + 1) / 2> codes;
  };
  template <int V>
  struct Values {
    uint32_t words[(V + 1) / 2];
  };
  static constexpr uint32_t kNoEscape = 0xffffffffu;

  __device__ static __forceinline__ Row row(const uint8_t* storage, int64_t columns, int64_t number) {
    const uint8_t* const tile = storage + number / kFixed4TileRows * fixed4_tile_bytes(columns);
    Row row;
    row.data = storage + row_offset(WeightFormat::fixed4, columns, number);
    const LoadedBytes<16> high = load_bytes<16, false>(tile);
    const LoadedBytes<16> low = load_bytes<16, false>(tile + kFixed4CodeCount);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      row.tables.high[i] = high.words[i];
      row.tables.low[i] = low.words[i];
    }
    const auto in_tile = static_cast<int>(number % kFixed4TileRows);
    const uint32_t* const ends = reinterpret_cast<const uint32_t*>(tile + kFixed4EndsOffset);
    row.escapes = ends + kFixed4TileRows;
    row.escape = in_tile == 0 ? 0 : __ldg(ends + in_tile - 1);
    row.escapes_end = __ldg(ends + in_tile);
    return row;
  }
  template <int kRows>
  __device__ static __forceinline__ void start(Row (&rows)[kRows]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      rows[r].next = loaded_escape(rows[r]);
      rows[r].following = loaded_escape(rows[r]);
    }
  }
  template <int V, bool kOnce>
  __device__ static __forceinline__ Vector<V> load(const Row& row, const Place& place, int lane) {
    const uint8_t* const piece = row.data + fixed4_piece_offset(place.first);
    Vector<V> vector;
    vector.sign_mantissas = load_bytes<V, kOnce>(piece + lane * place.steps + place.skipped);
    vector.codes =
        load_bytes<(V + 1) / 2, kOnce>(piece + place.steps * kLanes + lane_code_bytes(lane, place.steps) + place.skipped / 2);
    return vector;
  }
  template <int V>
  __device__ static __forceinline__ Values<V> expand(Row& row, const Vector<V>& vector, const Place& place, int lane) {
    Values<V> values;
#pragma unroll
    for (int i = 0; i < V; i += 4) {
      const Bf16Pairs pairs =
          fixed4_lookup(row.tables, vector.sign_mantissas.words[i / 4], vector.codes.words[i / 8] >> (i % 8 * 4));
      values.words[i / 2] = pairs.first;
      if constexpr (V >= 4) values.words[i / 2 + 1] = pairs.second;
    }
    const uint32_t first = static_cast<uint32_t>(place.first + place.skipped);
    // This is rare, and the same for all lanes. kNoEscape's step is behind the last step of any matrix.
    while (row.next != kNoEscape && (row.next >> 16) < first + V) {
      apply_escape<V>(values, row.next, first, lane);
      row.next = row.following;
      row.following = loaded_escape(row);
    }
    return values;
  }
  template <int V>
  __device__ static __forceinline__ float value(const Values<V>& values, int step, const float*) {
    const uint32_t word = values.words[step / 2];
    return float_of_bits(step % 2 == 0 ? word << 16 : word & 0xffff0000u);
  }

 private:
  __device__ static __forceinline__ uint32_t loaded_escape(Row& row) {
    return row.escape == row.escapes_end ? kNoEscape : __ldg(row.escapes + row.escape++);
  }
  template <int V>
  __device__ static __forceinline__ void apply_escape(Values<V>& values, uint32_t escape, uint32_t first, int lane) {
    const bool mine = (escape >> 8 & 31u) == static_cast<uint32_t>(lane);
    const int step = mine ? static_cast<int>((escape >> 16) - first) : -1;
    // No branches, so that the words stay in registers.
#pragma unroll
    for (int i = 0; i < (V + 1) / 2; ++i) {
      const uint32_t word = values.words[i];
      const uint32_t earlier = (word & 0xffff0000u) | with_exponent(word & 0xffffu, escape & 0xffu);
      const uint32_t later = (word & 0xffffu) | with_exponent(word >> 16, escape & 0xffu) << 16;
      values.words[i] = step == 2 * i ? earlier : step == 2 * i + 1 ? later : word;
    }
  }
};

}  // namespace odmoe::cuda
#endif
