// Dot products of a tile of four rows with some tokens, and matrix products made of them.
//
// A vector of W lanes takes lanes j..j+W-1 of the 32 partial sums, so a dot needs 32 / W of them. They are processed in pairs
// (lanes W*pair.. and 16 + W*pair..), one pass over the weights per pair: with 16 lanes one pass does it and the sums never leave
// the registers; with fewer, a pass covers a short run of columns, so that the next pass finds the weights in the first-level
// cache.
#pragma once
#include "kernels_accumulate.h"

namespace odmoe::cpu {
namespace {

// One run over a tile. parked holds [4 rows][tokens][32] partial sums between runs: they are read if resume, and written unless
// finish; finish puts the dots into dots[token][row].
struct Run {
  const float* x[kMostTokensAtOnce];
  int64_t blocks;
  float* parked;
  bool resume;
  bool finish;
  const uint8_t* ahead;
};

template <int kTokens, class Ahead, class Tile>
ODMOE_INLINE void run_in_registers(const Tile& tile, const Run& run, float (*dots)[kTileRows]) {
  Vector sums[kTileRows][kTokens][2];
  for (int r = 0; r < kTileRows; ++r) {
    for (int t = 0; t < kTokens; ++t) {
      const float* parked = run.parked + (r * kTokens + t) * kLanes;
      sums[r][t][0] = run.resume ? Simd::load(parked) : Simd::zero();
      sums[r][t][1] = run.resume ? Simd::load(parked + 16) : Simd::zero();
    }
  }
  accumulate<kTileRows, kTokens, Ahead>(tile, 0, 0, run.x, run.blocks, run.ahead, sums);
  if (run.finish) {
    for (int t = 0; t < kTokens; ++t) {
      Vector rows[kTileRows][kVectors];
      for (int i = 0; i < kTileRows * kVectors; ++i) rows[i / kVectors][i % kVectors] = sums[i / kVectors][t][i % kVectors];
      Simd::fold_rows(rows, dots[t]);
    }
    return;
  }
  for (int r = 0; r < kTileRows; ++r) {
    for (int t = 0; t < kTokens; ++t) {
      float* parked = run.parked + (r * kTokens + t) * kLanes;
      Simd::store(parked, sums[r][t][0]);
      Simd::store(parked + 16, sums[r][t][1]);
    }
  }
}

// If all lanes of two rows are in registers, their dots need not go through memory.
template <int kTokens, int kOfRow>
ODMOE_INLINE void fold_two_rows(const Vector (&sums)[2][kTokens][kOfRow], int row0, float (*dots)[kTileRows]) {
#pragma GCC unroll 3
  for (int t = 0; t < kTokens; t += 2) {
    const int next = t + 1 < kTokens ? t + 1 : t;
    const Vector rows[kTileRows][kOfRow] = {{sums[0][t][0], sums[0][t][1]},
                                            {sums[1][t][0], sums[1][t][1]},
                                            {sums[0][next][0], sums[0][next][1]},
                                            {sums[1][next][0], sums[1][next][1]}};
    float folded[kTileRows];
    Simd::fold_rows(rows, folded);
    __builtin_memcpy(dots[t] + row0, folded, 2 * sizeof(float));
    __builtin_memcpy(dots[next] + row0, folded + 2, 2 * sizeof(float));
  }
}

template <int kTokens, class Ahead, class Tile>
ODMOE_INLINE void run_in_passes(const Tile& tile, const Run& run, float (*dots)[kTileRows]) {
  constexpr int kRows = kRowsAtOnce<Tile, kTokens>;
  constexpr int kParts = kRows == 2 ? 2 : 1;
  constexpr bool kWhole = kPairs == 1 && kRows == 2;
  for (int row0 = 0; row0 < kTileRows; row0 += kRows) {
    for (int pair = 0; pair < kPairs; ++pair) {
      float* parked = run.parked + row0 * kTokens * kLanes + pair * kWidth;
      Vector sums[kRows][kTokens][2];
      if (run.resume) {
#pragma GCC unroll 12
        for (int i = 0; i < kRows * kTokens; ++i) {
          sums[i / kTokens][i % kTokens][0] = Simd::load(parked + i * kLanes);
          sums[i / kTokens][i % kTokens][1] = Simd::load(parked + i * kLanes + 16);
        }
      } else {
#pragma GCC unroll 12
        for (int i = 0; i < kRows * kTokens; ++i) {
          sums[i / kTokens][i % kTokens][0] = Simd::zero();
          sums[i / kTokens][i % kTokens][1] = Simd::zero();
        }
      }
      if (Ahead::kLines != 0 && pair == 0 && row0 / kRows < kParts) {
        const uint8_t* const ahead = Ahead::template part<kParts>(run.ahead, row0 / kRows, run.blocks);
        accumulate<kRows, kTokens, typename Ahead::template Part<kParts>>(tile, row0, pair, run.x, run.blocks, ahead, sums);
      } else {
        accumulate<kRows, kTokens, Fetch<0, 0, 2, Ahead::kNear>>(tile, row0, pair, run.x, run.blocks, nullptr, sums);
      }
      if constexpr (kWhole) {
        if (run.finish) {
          fold_two_rows(sums, row0, dots);
          continue;
        }
      }
#pragma GCC unroll 12
      for (int i = 0; i < kRows * kTokens; ++i) {
        Simd::store(parked + i * kLanes, sums[i / kTokens][i % kTokens][0]);
        Simd::store(parked + i * kLanes + 16, sums[i / kTokens][i % kTokens][1]);
      }
    }
  }
  if (kWhole || !run.finish) return;
  for (int t = 0; t < kTokens; ++t) {
    Vector rows[kTileRows][kVectors];
    for (int i = 0; i < kTileRows * kVectors; ++i) {
      const int r = i / kVectors;
      rows[r][i % kVectors] = Simd::load(run.parked + (r * kTokens + t) * kLanes + (i % kVectors) * kWidth);
    }
    Simd::fold_rows(rows, dots[t]);
  }
}

template <int kTokens, class Ahead, class Tile>
ODMOE_INLINE void run_tile(const Tile& tile, const Run& run, float (*dots)[kTileRows]) {
  if constexpr (kInRegisters<Tile, kTokens>) {
    run_in_registers<kTokens, Ahead>(tile, run, dots);
  } else {
    run_in_passes<kTokens, Ahead>(tile, run, dots);
  }
}

// A few tiles times a few tokens, all columns.
struct Panel {
  int64_t first_tile;
  int64_t tiles;
  int first_token;
  int64_t run_blocks;
  const uint8_t* ahead;  // the data to prefetch during the first block of the first tile
  // Bytes from one tile to the next, if each run prefetches the run behind it (then `ahead` is the first tile); 0 if the distance
  // of the prefetch is the same everywhere.
  int64_t stream_bytes = 0;
};

// The address to prefetch from during the run of a tile that begins at `block`.
template <class Ahead>
const uint8_t* ahead_of(const Panel& panel, int64_t tile, int64_t block, int64_t blocks, int64_t end) {
  if (panel.stream_bytes == 0) return panel.ahead + (tile * end + block) * Ahead::kStep;
  if (tile + 1 < panel.tiles) return panel.ahead + (tile + 1) * panel.stream_bytes + block * Ahead::kStep;
  if (block + blocks < end) return panel.ahead + (block + blocks) * Ahead::kStep;
  return panel.ahead + panel.tiles * panel.stream_bytes;
}

// Tiles that follow one another in memory; at() gives the weights of some blocks of a tile.
template <class TileOf>
struct StoredTiles {
  using Tile = TileOf;
  const uint8_t* data;
  int64_t bytes;
  int64_t columns;
  ODMOE_INLINE Tile at(int64_t tile, int64_t block, int64_t) { return Tile(data + tile * bytes, columns, block); }
};

template <int kTokens>
void store_dots(const MatmulJob& job, int64_t tile, int first_token, const float (*dots)[kTileRows]) {
  const int64_t row = tile * kTileRows;
  const int64_t rows = job.rows - row < kTileRows ? job.rows - row : kTileRows;
  const float* scales = nullptr;
  if (job.format == WeightFormat::int8) {
    scales = reinterpret_cast<const float*>(job.weights + scales_offset(job.format, job.rows, job.columns)) + row;
  }
  for (int t = 0; t < kTokens; ++t) {
    float* out = job.out + (first_token + t) * job.out_stride + row;
    for (int64_t r = 0; r < rows; ++r) out[r] = scales == nullptr ? dots[t][r] : dots[t][r] * scales[r];
  }
}

template <int kTokens, class Ahead, class Tiles>
void multiply_panel(const MatmulJob& job, const Panel& panel, Tiles& tiles, float* scratch) {
  const int64_t whole = job.columns / kLanes;
  const int64_t rest = job.columns % kLanes;
  const float* x[kTokens];
  alignas(64) float tails[kTokens][kLanes] = {};
  for (int t = 0; t < kTokens; ++t) {
    x[t] = job.in + (panel.first_token + t) * job.in_stride;
    for (int64_t i = 0; i < rest; ++i) tails[t][i] = x[t][whole * kLanes + i];
  }
  const int64_t end = whole + (rest != 0 ? 1 : 0);
  for (int64_t block = 0; block < end;) {
    const bool tail = block == whole;
    Run run;
    run.blocks = tail ? 1 : whole - block < panel.run_blocks ? whole - block : panel.run_blocks;
    for (int t = 0; t < kTokens; ++t) run.x[t] = tail ? tails[t] : x[t] + block * kLanes;
    run.resume = block != 0;
    run.finish = block + run.blocks == end;
    for (int64_t tile = 0; tile < panel.tiles; ++tile) {
      float dots[kTokens][kTileRows];
      run.parked = scratch + tile * (kTileRows * kTokens * kLanes);
      run.ahead = ahead_of<Ahead>(panel, tile, block, run.blocks, end);
      run_tile<kTokens, Ahead>(tiles.at(tile, block, run.blocks), run, dots);
      if (run.finish) store_dots<kTokens>(job, panel.first_tile + tile, panel.first_token, dots);
    }
    block += run.blocks;
  }
}

// Most tokens that one pass over the weights multiplies. Only BF16 and FP32 tiles, to which coded tiles are expanded, justify the
// code size of more than three.
template <class Tile>
constexpr int kTokensAtOnce = 3;
template <>
constexpr int kTokensAtOnce<Bf16Tile> = kMostTokensAtOnce;
template <>
constexpr int kTokensAtOnce<Fp32Tile> = kMostTokensAtOnce;

template <class Ahead, int kTokens, int kMost, class Tiles>
void multiply_tokens(const MatmulJob& job, const Panel& panel, int tokens, Tiles& tiles, float* scratch) {
  if (tokens == kTokens) return multiply_panel<kTokens, Ahead>(job, panel, tiles, scratch);
  if constexpr (kTokens < kMost) multiply_tokens<Ahead, kTokens + 1, kMost>(job, panel, tokens, tiles, scratch);
}

// Columns are cut into runs of about equal length: a short last run would prefetch too little of the data behind it.
constexpr int64_t even_run(int64_t columns) {
  const int64_t blocks = columns / kLanes;
  const int64_t runs = (blocks + kRunBlocks - 1) / kRunBlocks;
  return runs == 0 ? kRunBlocks : (blocks + runs - 1) / runs;
}

// One pass of all tokens over the weights as they stream in from memory. If sums and inputs fit, it takes one tile at a time;
// otherwise some tiles together, a run of columns of each in turn, so that the inputs of a run stay in the first-level cache.
template <class Tile>
void multiply_stream(const MatmulJob& job, int64_t first_tile, int64_t tiles, float* scratch) {
  constexpr int kLines = static_cast<int>((Tile::kBlockBytes + 63) / 64);
  const int64_t bytes = tile_bytes(job.format, job.columns);
  constexpr bool kOneAlone = kRowsAtOnce<Tile, 1> == kTileRows;
  const bool alone = (kOneAlone && job.n == 1) || (kInRegisters<Tile, 2> && job.n == 2 && job.columns <= kRunBlocks * kLanes);
  const int64_t together = alone ? 1 : kStreamTiles;
  Panel panel;
  panel.first_token = 0;
  panel.run_blocks = kPairs == 1 && alone ? INT64_MAX : even_run(job.columns);
  for (int64_t done = 0; done < tiles; done += together) {
    panel.first_tile = first_tile + done;
    panel.tiles = tiles - done < together ? tiles - done : together;
    StoredTiles<Tile> weights{job.weights + panel.first_tile * bytes, bytes, job.columns};
    if (alone) {
      panel.ahead = weights.data + kStreamAhead;
      multiply_tokens<Fetch<kLines, Tile::kBlockBytes, 3>, 1, 2>(job, panel, job.n, weights, scratch);
    } else {
      panel.ahead = weights.data;
      panel.stream_bytes = bytes;
      multiply_tokens<Fetch<kLines, Tile::kBlockBytes, 2>, kOneAlone ? 2 : 1, kTokensAtOnce<Tile>>(job, panel, job.n, weights,
                                                                                                   scratch);
    }
  }
}

// Several passes over a group of tiles in the second-level cache; the first two passes prefetch half of the next group each.
// prepare(first tile, count) gives the group's tiles; kBlockBytes: bytes of a block of columns in memory.
template <int64_t kBlockBytes, class Prepare>
void multiply_groups(const MatmulJob& job, int64_t first_tile, int64_t tiles, float* scratch, Prepare&& prepare) {
  using Tiles = decltype(prepare(first_tile, tiles));
  constexpr int kHalfLines = static_cast<int>((kBlockBytes + 127) / 128);
  constexpr int kAtOnce = kTokensAtOnce<typename Tiles::Tile>;
  constexpr int kNear = kAtOnce > 3 ? kNearBlocks : 0;
  using Half = Fetch<kHalfLines, kHalfLines * 64, 2, kNear>;
  const int64_t bytes = tile_bytes(job.format, job.columns);
  const int64_t group = group_tiles(job.format, job.columns);
  const int passes = (job.n + kAtOnce - 1) / kAtOnce;
  for (int64_t done = 0; done < tiles; done += group) {
    Panel panel;
    panel.first_tile = first_tile + done;
    panel.tiles = tiles - done < group ? tiles - done : group;
    panel.run_blocks = even_run(job.columns);
    const uint8_t* const next = job.weights + (panel.first_tile + group) * bytes;
    const int64_t half = panel.tiles * column_blocks(job.columns) * Half::kStep;
    const bool last = tiles - done <= group;
    Tiles weights = prepare(panel.first_tile, panel.tiles);
    for (int pass = 0; pass < passes; ++pass) {
      // Tokens are spread evenly over the passes: 8 are 4 and 4, not 6 and 2.
      panel.first_token = static_cast<int>(int64_t{pass} * job.n / passes);
      const int tokens = static_cast<int>(int64_t{pass + 1} * job.n / passes) - panel.first_token;
      panel.ahead = next + pass * half;
      if (last || pass > 1) {
        multiply_tokens<Fetch<0, 0, 2, kNear>, 1, kAtOnce>(job, panel, tokens, weights, scratch);
      } else {
        multiply_tokens<Half, 1, kAtOnce>(job, panel, tokens, weights, scratch);
      }
    }
  }
}

template <class Tile>
void multiply_tiles(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  if (job.n <= kTokensAtOnce<Tile>) return multiply_stream<Tile>(job, first_tile, tiles, scratch.sums);
  const int64_t bytes = tile_bytes(job.format, job.columns);
  const auto stored_from = [&](int64_t first, int64_t) {
    return StoredTiles<Tile>{job.weights + first * bytes, bytes, job.columns};
  };
  multiply_groups<Tile::kBlockBytes>(job, first_tile, tiles, scratch.sums, stored_from);
}

}  // namespace
}  // namespace odmoe::cpu
