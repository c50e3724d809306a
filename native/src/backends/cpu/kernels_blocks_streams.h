// The tiles of block formats (weight_layout.h) as vectors of FP32, a run of blocks of columns at a time. A stream's at() gives the
// weights of a run; it computes what all columns of a scale need once for the run.
#pragma once
#include "kernels_accumulate.h"
#include "kernels_blocks_gguf.h"
#include "kernels_sliced.h"
#include "odmoe/quantized_values.h"

namespace odmoe::cpu {
namespace {

template <class F>
struct GgufTile {
  static constexpr int kGroups = F::kColumns / kLanes;
  const uint8_t* data;
  const float* steps;
  const float* bases;
  ODMOE_INLINE void expand(int64_t block, int row, int pair, Vector& low, Vector& high) const {
    static_assert(!kRows, "expand_row() expands the rows of this format, whose codes may lack their middle");
    const uint8_t* const own = data + (block / kGroups * kTileRows + row) * F::kBytes;
    if (row == 0 && pair == 0) prefetch(block);
    const int64_t scale = (row * kRunBlocks + block) * F::kScales;
    if constexpr (Simd::kLooksUpCodes && requires { requires F::kHalves != 0; }) {
      expand_steps<Simd, 4>(own + F::kHalves, pair, steps[scale], bases[scale], low, high);
    } else {
      F::codes(own, static_cast<int>(block % kGroups), pair, low, high);
      apply_steps(scale, low, high);
    }
  }
  // Codes become weights.
  ODMOE_INLINE void apply_steps(int64_t scale, Vector& low, Vector& high) const {
    const Vector low_step = Simd::broadcast(steps[scale]);
    const Vector high_step = F::kScales == 1 ? low_step : Simd::broadcast(steps[scale + F::kScales - 1]);
    if constexpr (F::kBases) {
      const Vector low_base = Simd::broadcast(bases[scale]);
      const Vector high_base = F::kScales == 1 ? low_base : Simd::broadcast(bases[scale + F::kScales - 1]);
      low = Simd::fma(low, low_step, low_base);
      high = Simd::fma(high, high_step, high_base);
    } else {
      low = Simd::multiply(low, low_step);
      high = Simd::multiply(high, high_step);
    }
  }
  static constexpr bool kRows = Simd::kWholeRows && requires(Vector(&values)[kVectors]) {
    F::template row_codes<Simd>(nullptr, 0, values);
  };
  // Blocks of columns that lie in a block of the format: what they share is read once.
  static constexpr int kTogether = kRows ? kGroups : 1;
  // All 32 columns of a row, group `group` of the block that begins at block of columns `block`.
  ODMOE_INLINE void expand_row(int64_t block, int group, int row, Vector (&values)[kVectors]) const {
    const uint8_t* const own = data + (block / kGroups * kTileRows + row) * F::kBytes;
    const int64_t scale = (row * kRunBlocks + block + group) * F::kScales;
    if constexpr (requires(Vector v) { F::template row_weights<Simd>(own, group, v, v, values); }) {
      F::template row_weights<Simd>(own, group, Simd::broadcast(steps[scale]), Simd::broadcast(bases[scale]), values);
    } else {
      F::template row_codes<Simd>(own, group, values);
      apply_row_steps(scale, values);
    }
  }
  // The same for all 32 codes of a row.
  ODMOE_INLINE void apply_row_steps(int64_t scale, Vector (&values)[kVectors]) const {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      const int64_t part = scale + (i < kVectors / 2 ? 0 : F::kScales - 1);
      const Vector step = Simd::broadcast(steps[part]);
      if constexpr (F::kBases) {
        values[i] = Simd::fma(values[i], step, Simd::broadcast(bases[part]));
      } else if constexpr (requires { F::kMiddle; }) {
        // As with a base, zero has no sign.
        values[i] = Simd::fma(values[i], step, Simd::zero());
      } else {
        values[i] = Simd::multiply(values[i], step);
      }
    }
  }
  // The lines that lie far ahead of some rows.
  template <int kCount>
  ODMOE_INLINE void prefetch_rows(int64_t block, int row) const {
    const uint8_t* const ahead = data + (block / kGroups * kTileRows + row) * F::kBytes + kStreamAhead;
    for (int line = 0; line < kCount * F::kBytes; line += 64) __builtin_prefetch(ahead + line);
  }
  // The next lines: as many bytes as a block of columns takes.
  ODMOE_INLINE void prefetch(int64_t block) const {
    constexpr int kBytes = F::kBytes * kTileRows / kGroups;
    for (int line = 0; line < kBytes; line += 64) __builtin_prefetch(data + block * kBytes + kStreamAhead + line);
  }
};

template <class F>
struct GgufStream {
  using Tile = GgufTile<F>;
  static constexpr int64_t kGroups = Tile::kGroups;
  static constexpr int64_t kBlockBytes = F::kBytes * kTileRows / kGroups;
  const uint8_t* weights;
  int64_t bytes;
  alignas(64) float steps[kTileRows * kRunBlocks * F::kScales];
  alignas(64) float bases[F::kBases ? kTileRows * kRunBlocks * F::kScales : 1];

  explicit GgufStream(const MatmulJob& job) : weights(job.weights), bytes(tile_bytes(job.format, job.columns)) {}

  // A run begins at a multiple of kRunBlocks, and has whole blocks of the format.
  ODMOE_INLINE Tile at(int64_t tile, int64_t block, int64_t blocks) {
    const uint8_t* const data = weights + tile * bytes + block / kGroups * kTileRows * F::kBytes;
    const uint8_t* own = data;
    for (int64_t i = 0; i < blocks; i += kGroups) {
      for (int row = 0; row < kTileRows; ++row, own += F::kBytes) {
        const int64_t to = (row * kRunBlocks + i) * F::kScales;
        F::prepare(own, steps + to, bases + (F::kBases ? to : 0));
      }
    }
    return {data, steps, bases};
  }
};

// E4M3 values, and 256 times their scales.
struct E4m3Tile {
  const uint8_t* codes;
  const float* scales;
  ODMOE_INLINE void expand(int64_t block, int row, int pair, Vector& low, Vector& high) const {
    const int64_t at = block * kTileRows + row;
    const uint8_t* const own = codes + at * kLanes + pair * kWidth * 2;
    if (row == 0 && pair == 0) {
      __builtin_prefetch(own + kStreamAhead);
      __builtin_prefetch(own + kStreamAhead + 64);
    }
    const Vector scale = Simd::broadcast(scales[at]);
    Simd::expand_fp8(own, low, high);
    low = Simd::multiply(low, scale);
    high = Simd::multiply(high, scale);
  }
};

// All formats of E4M3 values: their scales are spread over the blocks of a run.
struct E4m3Stream {
  using Tile = E4m3Tile;
  static constexpr int64_t kBlockBytes = kTileRows * kLanes;
  static constexpr int64_t kScaleBlocks = kFp8Block / kLanes;
  WeightFormat kind;
  const uint8_t* weights;
  const uint8_t* end;
  int64_t codes;
  int64_t bytes;
  int64_t row_tile = -1;  // fp8_row: the tile whose scales are spread
  alignas(64) float scales[kRunBlocks * kTileRows];

  explicit E4m3Stream(const MatmulJob& job)
      : kind(kind_of(job.format)),
        weights(job.weights),
        end(job.weights + scales_offset(job.format, job.rows, job.columns)),
        codes(kind == WeightFormat::fp8 ? fp8_scale_bytes(job.columns) : block_tile_layout(job.format, job.columns).codes),
        bytes(tile_bytes(job.format, job.columns)) {}

  // One float for all rows of a block.
  ODMOE_INLINE void spread(const uint8_t* from, int64_t to) {
    float scale;
    __builtin_memcpy(&scale, from, 4);
    for (int row = 0; row < kTileRows; ++row) scales[to * kTileRows + row] = scale;
  }
  // A float for each row of a block.
  ODMOE_INLINE void copy(const uint8_t* from, int64_t to) { __builtin_memcpy(scales + to * kTileRows, from, kTileRows * 4); }

  ODMOE_INLINE void prepare(const uint8_t* data, int64_t tile, int64_t block, int64_t blocks) {
    if (kind == WeightFormat::mxfp8) {
      // 2^(e - 127) * 2^8, as the bits of an FP32.
      const uint8_t* const exponents = data + block * kTileRows;
      for (int64_t i = 0; i < blocks * kTileRows; ++i) scales[i] = float_of_bits((static_cast<uint32_t>(exponents[i]) + 8) << 23);
    } else if (kind == WeightFormat::fp8) {
      for (int64_t i = 0; i < blocks; ++i) copy(data + (block + i) / kScaleBlocks * kTileRows * 4, i);
    } else if (kind == WeightFormat::fp8_tile) {
      for (int64_t i = 0; i < blocks; ++i) spread(data + (block + i) / kScaleBlocks * 4, i);
    } else if (row_tile != tile) {
      row_tile = tile;
      for (int64_t i = 0; i < kRunBlocks; ++i) copy(end + tile * kTileRows * 4, i);
    }
  }

  ODMOE_INLINE Tile at(int64_t tile, int64_t block, int64_t blocks) {
    const uint8_t* const data = weights + tile * bytes;
    prepare(data, tile, block, blocks);
    return {data + codes + block * kBlockBytes, scales};
  }
};

// The weights of every scale of an nvfp4 matrix, without signs.
struct Nvfp4Table {
  alignas(64) float magnitudes[128 * 8];
  float global = 0;
  bool filled = false;

  ODMOE_INLINE void fill(float scale, bool divided) {
    if (filled && float_bits(scale) == float_bits(global)) return;
    for (int i = 0; i < 128 * 8; ++i) {
      const float value = kMxfp4Values[i % 8] * kE4m3Values.values[i / 8];
      magnitudes[i] = divided ? value / scale : value * scale;
    }
    global = scale;
    filled = true;
  }
};

struct Nvfp4Tile {
  const uint8_t* codes;
  const uint8_t* scales;
  const float* tables[kTileRows];
  int64_t first;
  ODMOE_INLINE void expand(int64_t block, int row, int pair, Vector& low, Vector& high) const {
    const int64_t at = (first + block) * kTileRows + row;
    const uint8_t* const own = codes + at * (kLanes / 2) + pair * kWidth;
    if (row == 0 && pair == 0) __builtin_prefetch(own + kStreamAhead);
    const Integers bytes = Simd::load_bytes(own);
    const float* const table = tables[row];
    low = Simd::look_up_magnitudes(table + scales[2 * at] % 128 * 8, bytes);
    high = Simd::look_up_magnitudes(table + scales[2 * at + 1] % 128 * 8, upper_half(bytes));
  }
};

// The rows of a matrix nearly always have one scale; where several matrices became one, they have a few, in runs of rows.
struct Nvfp4Stream {
  using Tile = Nvfp4Tile;
  const uint8_t* weights;
  const uint8_t* end;
  bool divided;
  BlockTileLayout layout;
  Nvfp4Table tables[kTileRows];

  explicit Nvfp4Stream(const MatmulJob& job)
      : weights(job.weights),
        end(job.weights + scales_offset(job.format, job.rows, job.columns)),
        divided(kind_of(job.format) == WeightFormat::nvfp4_divided),
        layout(block_tile_layout(job.format, job.columns)) {}

  ODMOE_INLINE Tile at(int64_t tile, int64_t block, int64_t) {
    const uint8_t* const data = weights + tile * layout.bytes;
    Tile made{data + layout.codes, data, {}, block};
    uint32_t globals[kTileRows];
    __builtin_memcpy(globals, end + tile * kTileRows * 4, sizeof globals);
    for (int row = 0; row < kTileRows; ++row) {
      const bool first = row == 0 || globals[row] != globals[row - 1];
      if (first) tables[row].fill(float_of_bits(globals[row]), divided);
      made.tables[row] = first ? tables[row].magnitudes : made.tables[row - 1];
    }
    return made;
  }
};

// Codes of grouped formats. Steps of 16 bits give weights by one fused operation, whose product and sum are exact; with FP32 steps
// (kWide) the code has its zero subtracted first, and the product is the one rounding.
template <int kBits, bool kWide>
struct GroupedTile {
  const uint8_t* codes;
  const float* steps;
  const float* bases;  // kWide: zeros
  int64_t first;
  ODMOE_INLINE void expand(int64_t block, int row, int pair, Vector& low, Vector& high) const {
    constexpr int kRowBytes = kBits * kLanes / 8;
    const uint8_t* const own = codes + ((first + block) * kTileRows + row) * kRowBytes + pair * kWidth;
    if (row == 0 && pair == 0) {
      for (int line = 0; line < kTileRows * kRowBytes; line += 64) __builtin_prefetch(own + kStreamAhead + line);
    }
    if constexpr (kBits == 4 && !kWide) {
      const int64_t at = block * kTileRows + row;
      return expand_steps<Simd, 4>(own - pair * kWidth, pair, steps[at], bases[at], low, high);
    }
    const Vector step = Simd::broadcast(steps[block * kTileRows + row]);
    const Vector base = Simd::broadcast(bases[block * kTileRows + row]);
    if constexpr (kBits == 4) {
      Simd::expand_codes4(own, low, high);
    } else {
      low = Simd::to_floats(Simd::load_bytes(own));
      high = Simd::to_floats(Simd::load_bytes(own + 16));
    }
    low = kWide ? Simd::multiply(Simd::subtract(low, base), step) : Simd::fma(low, step, base);
    high = kWide ? Simd::multiply(Simd::subtract(high, base), step) : Simd::fma(high, step, base);
  }
};

template <int kBits, bool kWide>
struct GroupedStream {
  using Tile = GroupedTile<kBits, kWide>;
  // One for each group of a run; conversion writes up to a vector behind the last one.
  static constexpr int64_t kMostSteps = (kRunBlocks + 1) * kTileRows + kWidth;
  const uint8_t* weights;
  GroupedCodes codes;
  int64_t group_blocks;
  BlockTileLayout layout;
  alignas(64) float steps[kMostSteps];
  alignas(64) float bases[kMostSteps];

  explicit GroupedStream(const MatmulJob& job)
      : weights(job.weights),
        codes(grouped_codes(job.format)),
        group_blocks(codes.group == 0 ? INT64_MAX : codes.group / kLanes),
        layout(block_tile_layout(job.format, job.columns)) {}

  // Steps and bases of `count` groups of a tile.
  ODMOE_INLINE void prepare(const uint8_t* tile, int64_t group, int64_t count, float* to_steps, float* to_bases) const {
    const int64_t first = group * kTileRows;
    count *= kTileRows;
    if constexpr (kWide) {
      for (int64_t i = 0; i < count; ++i) to_steps[i] = float_of_bits(word_at(tile + 4 * (first + i)));
    } else if (codes.scales == ScaleType::fp16) {
      for (int64_t i = 0; i < count; i += kWidth) Simd::store(to_steps + i, Simd::load_fp16(tile + 2 * (first + i)));
    } else {
      for (int64_t i = 0; i < count; ++i) {
        uint16_t bits;
        __builtin_memcpy(&bits, tile + 2 * (first + i), 2);
        to_steps[i] = float_of_bits(static_cast<uint32_t>(bits) << 16);
      }
    }
    const uint8_t* const zeros = tile + layout.zeros;
    for (int64_t i = 0; i < count; ++i) to_bases[i] = kBits == 4 ? 8.0f : 128.0f;
    if (codes.zeros && kBits == 8) {
      for (int64_t i = 0; i < count; ++i) to_bases[i] = static_cast<float>(zeros[first + i]);
    } else if (codes.zeros) {
      for (int64_t i = 0; i < count; i += kTileRows) {
        const int64_t own = group + i / kTileRows;
        const int shift = static_cast<int>(own % 2 * 4);
        for (int row = 0; row < kTileRows; ++row) {
          to_bases[i + row] = static_cast<float>(zeros[own / 2 * kTileRows + row] >> shift & 15);
        }
      }
    }
    if constexpr (!kWide) {
      for (int64_t i = 0; i < count; ++i) to_bases[i] = -to_steps[i] * to_bases[i];
    }
  }

  ODMOE_INLINE Tile at(int64_t tile, int64_t block, int64_t blocks) {
    const uint8_t* const data = weights + tile * layout.bytes;
    const int64_t group = block / group_blocks;
    if (group_blocks == 1) {
      prepare(data, group, blocks, steps, bases);
      return {data + layout.codes, steps, bases, block};
    }
    const int64_t count = (block + blocks - 1) / group_blocks - group + 1;
    alignas(64) float group_steps[kMostSteps];
    alignas(64) float group_bases[kMostSteps];
    prepare(data, group, count, group_steps, group_bases);
    int64_t left = group_blocks - block % group_blocks;
    for (int64_t i = 0, from = 0; i < blocks; ++i) {
      __builtin_memcpy(steps + i * kTileRows, group_steps + from, kTileRows * sizeof(float));
      __builtin_memcpy(bases + i * kTileRows, group_bases + from, kTileRows * sizeof(float));
      if (--left != 0) continue;
      left = group_blocks;
      from += kTileRows;
    }
    return {data + layout.codes, steps, bases, block};
  }
};

}  // namespace
}  // namespace odmoe::cpu
