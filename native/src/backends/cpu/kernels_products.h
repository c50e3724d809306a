// The matrix product of every format. Coded weights are expanded before they are multiplied: to BF16 (fixed4, mxfp4), or FP32
// (fp8, block formats).
#pragma once
#include "kernels_blocks.h"
#include "kernels_dot.h"
#include "kernels_fixed4.h"
#include "kernels_mxfp4.h"
#include "kernels_sliced.h"

namespace odmoe::cpu {
namespace {

template <>
constexpr int kTokensAtOnce<Fixed4Tile<Simd>> = Simd::kFixed4Tokens;

// Tiles that are expanded to another layout, a run of blocks at a time, by Reader(tile, columns).expand(first block, blocks, to).
template <class ReaderOf, class TileOf>
struct ExpandedStream {
  using Tile = TileOf;
  using Reader = ReaderOf;
  Reader reader;
  alignas(64) uint8_t run[kRunBlocks * Tile::kBlockBytes];
  ODMOE_INLINE Tile at(int64_t, int64_t block, int64_t blocks) {
    reader.template expand<kStreamAhead>(block, blocks, run);
    return Tile(run, 0, 0);
  }
};

template <class Reader, class Tile>
void multiply_expanded_stream(const MatmulJob& job, int64_t first_tile, int64_t tiles, float* scratch) {
  const int64_t bytes = tile_bytes(job.format, job.columns);
  Panel panel;
  panel.tiles = 1;
  panel.first_token = 0;
  panel.run_blocks = kRunBlocks;
  panel.ahead = nullptr;
  ExpandedStream<Reader, Tile> weights;
  for (int64_t tile = first_tile; tile < first_tile + tiles; ++tile) {
    weights.reader = Reader(job.weights + tile * bytes, job.columns);
    panel.first_tile = tile;
    multiply_tokens<FetchNothing, 1, kMostTokensAtOnce>(job, panel, job.n, weights, scratch);
  }
}

// A group is expanded once, for all tokens.
template <class Reader, class Tile, int64_t kBlockBytes>
void multiply_expanded_groups(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  const int64_t bytes = tile_bytes(job.format, job.columns);
  const int64_t blocks = column_blocks(job.columns);
  multiply_groups<kBlockBytes>(job, first_tile, tiles, scratch.sums, [&](int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      Reader reader(job.weights + (first + i) * bytes, job.columns);
      reader.template expand<0>(0, blocks, scratch.expanded + i * blocks * Tile::kBlockBytes);
    }
    return StoredTiles<Tile>{scratch.expanded, blocks * Tile::kBlockBytes, job.columns};
  });
}

template <class Reader, class Tile, int64_t kBlockBytes>
void multiply_expanded_tiles(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  if (job.n <= kMostTokensAtOnce) return multiply_expanded_stream<Reader, Tile>(job, first_tile, tiles, scratch.sums);
  multiply_expanded_groups<Reader, Tile, kBlockBytes>(job, first_tile, tiles, scratch);
}

// Multiplies one token, for instruction sets that expand a row's 32 weights together; the sums of two rows at a time stay in
// registers.
template <class Set>
void multiply_mxfp4_token(const MatmulJob& job, int64_t first_tile, int64_t tiles) {
  constexpr int kRows = 2;
  const int64_t bytes = tile_bytes(job.format, job.columns);
  const int64_t blocks = column_blocks(job.columns);
  for (int64_t number = first_tile; number < first_tile + tiles; ++number) {
    const uint8_t* const tile = job.weights + number * bytes;
    Vector rows[kTileRows][kVectors];
#pragma GCC unroll 2
    for (int row0 = 0; row0 < kTileRows; row0 += kRows) {
      Vector sums[kRows][kVectors];
      for (int i = 0; i < kRows * kVectors; ++i) sums[i / kVectors][i % kVectors] = Simd::zero();
      const uint8_t* codes = tile + mxfp4_scale_bytes(job.columns) + row0 * (kLanes / 2);
      const float* x = job.in;
      for (int64_t block = 0; block < blocks; ++block, codes += kMxfp4BlockBytes, x += kLanes) {
        if (row0 == 0) __builtin_prefetch(codes + kStreamAhead);
#pragma GCC unroll 2
        for (int r = 0; r < kRows; ++r) {
          const uint8_t scale = tile[block * kTileRows + row0 + r];
          Vector weights[kVectors];
          Set::expand_mxfp4_row(codes + r * (kLanes / 2), kMxfp4Table.scales[scale].bytes, weights);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) sums[r][v] = Simd::fma(Simd::load(x + v * kWidth), weights[v], sums[r][v]);
        }
      }
      for (int i = 0; i < kRows * kVectors; ++i) rows[row0 + i / kVectors][i % kVectors] = sums[i / kVectors][i % kVectors];
    }
    float dots[1][kTileRows];
    Simd::fold_rows(rows, dots[0]);
    store_dots<1>(job, number, 0, dots);
  }
}

template <class Set>
void multiply_mxfp4_tiles(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  if constexpr (Set::kMxfp4InRegisters) {
    if (job.n <= kTokensAtOnce<Mxfp4Tile<Set>>) return multiply_stream<Mxfp4Tile<Set>>(job, first_tile, tiles, scratch.sums);
  }
  if constexpr (Set::kMxfp4RowsTogether) {
    if (job.n == 1 && job.columns % kLanes == 0) return multiply_mxfp4_token<Set>(job, first_tile, tiles);
  }
  multiply_expanded_tiles<Mxfp4Reader, Bf16Tile, kMxfp4BlockBytes + kTileRows>(job, first_tile, tiles, scratch);
}

template <class Set>
void multiply_fixed4_tiles(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  if constexpr (Set::kFixed4Tokens > 0) {
    if (job.n <= Set::kFixed4Tokens) return multiply_stream<Fixed4Tile<Set>>(job, first_tile, tiles, scratch.sums);
  }
  multiply_expanded_tiles<Fixed4Reader, Bf16Tile, kFixed4BlockBytes>(job, first_tile, tiles, scratch);
}

void multiply_fp8_tiles(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  if (job.n <= kTokensAtOnce<Fp8Tile>) return multiply_stream<Fp8Tile>(job, first_tile, tiles, scratch.sums);
  multiply_expanded_tiles<Fp8Reader, Fp32Tile, Fp8Tile::kBlockBytes>(job, first_tile, tiles, scratch);
}

// Multiplies one token, for instruction sets with several vectors in a half of a row's block: the sums of two rows at a time stay in
// registers, so that a step and a base are read once for all weights of a row's block.
template <int kBits, bool kBoth>
void multiply_sliced_token(const MatmulJob& job, int64_t first_tile, int64_t tiles, SlicedStream<kBits, kBoth>& stream) {
  constexpr int kRows = 2;
  const int64_t blocks = column_blocks(job.columns);
  for (int64_t number = first_tile; number < first_tile + tiles; ++number) {
    Vector rows[kTileRows][kVectors];
    for (int i = 0; i < kTileRows * kVectors; ++i) rows[i / kVectors][i % kVectors] = Simd::zero();
    for (int64_t first = 0; first < blocks; first += kRunBlocks) {
      const int64_t count = blocks - first < kRunBlocks ? blocks - first : kRunBlocks;
      const auto tile = stream.at(number, first, count);
#pragma GCC unroll 2
      for (int row0 = 0; row0 < kTileRows; row0 += kRows) {
        Vector sums[kRows][kVectors];
        for (int i = 0; i < kRows * kVectors; ++i) sums[i / kVectors][i % kVectors] = rows[row0 + i / kVectors][i % kVectors];
        const float* x = job.in + first * kLanes;
        for (int64_t block = 0; block < count; ++block, x += kLanes) {
#pragma GCC unroll 2
          for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
            for (int pair = 0; pair < kPairs; ++pair) {
              Vector low, high;
              tile.expand(block, row0 + r, pair, low, high);
              sums[r][pair] = Simd::fma(Simd::load(x + pair * kWidth), low, sums[r][pair]);
              sums[r][kPairs + pair] = Simd::fma(Simd::load(x + 16 + pair * kWidth), high, sums[r][kPairs + pair]);
            }
          }
        }
        for (int i = 0; i < kRows * kVectors; ++i) rows[row0 + i / kVectors][i % kVectors] = sums[i / kVectors][i % kVectors];
      }
    }
    float dots[1][kTileRows];
    Simd::fold_rows(rows, dots[0]);
    store_dots<1>(job, number, 0, dots);
  }
}

template <int kBits, bool kBoth>
void multiply_sliced(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  SlicedStream<kBits, kBoth> stream;
  stream.rows = SlicedRows(job.format, job.rows, job.columns, job.weights, job.lower, job.reading);
  if constexpr (kPairs == 2 || kPairs == 4) {
    if (job.n == 1 && job.columns % kLanes == 0) return multiply_sliced_token<kBits, kBoth>(job, first_tile, tiles, stream);
  }
  if (job.n <= kMostTokensAtOnce) {
    Panel panel{first_tile, 1, 0, kRunBlocks, nullptr};
    for (int64_t tile = first_tile; tile < first_tile + tiles; ++tile) {
      panel.first_tile = tile;
      stream.first_tile = tile;
      multiply_tokens<FetchNothing, 1, kMostTokensAtOnce>(job, panel, job.n, stream, scratch.sums);
    }
    return;
  }
  const int64_t blocks = column_blocks(job.columns);
  multiply_groups<SlicedTile<kBits, kBoth>::kBlockBytes>(job, first_tile, tiles, scratch.sums, [&](int64_t first, int64_t count) {
    float* const expanded = reinterpret_cast<float*>(scratch.expanded);
    for (int64_t i = 0; i < count; ++i) expand_sliced_tile(stream, first + i, blocks, expanded + i * blocks * kTileRows * kLanes);
    return StoredTiles<Fp32Tile>{scratch.expanded, blocks * Fp32Tile::kBlockBytes, job.columns};
  });
}

template <int kBits>
void multiply_sliced_tiles(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  if (job.reading == SliceReading::both) return multiply_sliced<kBits, true>(job, first_tile, tiles, scratch);
  multiply_sliced<kBits, false>(job, first_tile, tiles, scratch);
}

void matmul(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  switch (job.format) {
    case WeightFormat::bf16: return multiply_tiles<Bf16Tile>(job, first_tile, tiles, scratch);
    case WeightFormat::fp16: return multiply_tiles<Fp16Tile>(job, first_tile, tiles, scratch);
    case WeightFormat::fp32: return multiply_tiles<Fp32Tile>(job, first_tile, tiles, scratch);
    case WeightFormat::int8: return multiply_tiles<Int8Tile>(job, first_tile, tiles, scratch);
    case WeightFormat::nf4: return multiply_tiles<Nf4Tile>(job, first_tile, tiles, scratch);
    case WeightFormat::fixed4: return multiply_fixed4_tiles<Simd>(job, first_tile, tiles, scratch);
    case WeightFormat::mxfp4: return multiply_mxfp4_tiles<Simd>(job, first_tile, tiles, scratch);
    case WeightFormat::fp8: return multiply_fp8_tiles(job, first_tile, tiles, scratch);
    case WeightFormat::sliced84: return multiply_sliced_tiles<4>(job, first_tile, tiles, scratch);
    case WeightFormat::sliced63: return multiply_sliced_tiles<3>(job, first_tile, tiles, scratch);
    case WeightFormat::sliced42: return multiply_sliced_tiles<2>(job, first_tile, tiles, scratch);
    default: return multiply_blocks(job, first_tile, tiles, scratch);
  }
}

}  // namespace
}  // namespace odmoe::cpu
