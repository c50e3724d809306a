// Products of coded weights. They are multiplied as they are read for one token, and expanded to FP32 for more: only these two are
// compiled for every format.
//
// A stream is made from a job. Its at() gives the weights of a run of blocks of columns of a tile: expand() of them gives columns
// W*pair.. and 16 + W*pair.. of a row, and prefetches what follows; or (kRows) expand_row() gives all of them, and prefetch_rows() prefetches.
#pragma once
#include "kernels_dot.h"
#include "kernels_units.h"

namespace odmoe::cpu {
namespace {

using ODMOE_INSTRUCTION_SET::AnyTiles;

// Blocks of columns that a tile expands together.
template <class Tile>
constexpr int blocks_together() {
  if constexpr (requires { Tile::kTogether; }) return Tile::kTogether;
  return 1;
}

// The weights of a row's block, one of those that are expanded together, as columns 0 to W - 1, W to 2 W - 1 and so on.
template <class Tile>
ODMOE_INLINE void expand_row(const Tile& tile, int64_t block, int number, int row, Vector (&values)[kVectors]) {
  if constexpr (requires { requires Tile::kRows; }) {
    tile.expand_row(block, number, row, values);
  } else {
#pragma GCC unroll 4
    for (int pair = 0; pair < kPairs; ++pair) tile.expand(block + number, row, pair, values[pair], values[kPairs + pair]);
  }
}

template <int kCount, class Tile>
ODMOE_INLINE void prefetch_rows(const Tile& tile, int64_t block, int row) {
  if constexpr (requires { requires Tile::kRows; }) tile.template prefetch_rows<kCount>(block, row);
}

// Writes the weights of some blocks of a tile in the fp32 layout.
template <class Stream>
[[gnu::noinline]] void expand_run(void* stream, int64_t tile, int64_t block, int64_t blocks, void* to) {
  float* out = static_cast<float*>(to);
  const auto weights = static_cast<Stream*>(stream)->at(tile, block, blocks);
  constexpr int kTogether = blocks_together<typename Stream::Tile>();
  for (int64_t i = 0; i < blocks; i += kTogether) {
    prefetch_rows<kTileRows>(weights, i, 0);
#pragma GCC unroll 8
    for (int number = 0; number < kTogether; ++number) {
      for (int row = 0; row < kTileRows; ++row, out += kLanes) {
        Vector values[kVectors];
        expand_row(weights, i, number, row, values);
        for (int v = 0; v < kVectors; ++v) Simd::store(out + v * kWidth, values[v]);
      }
    }
  }
}

// One token: the sums of some rows at a time stay in registers.
template <class Stream>
void multiply_one_token(const MatmulJob& job, int64_t first_tile, int64_t tiles, Stream& stream) {
  constexpr int kTogether = blocks_together<typename Stream::Tile>();
  constexpr int kRows = kPairs == 1 ? kTileRows : kTogether > 1 ? 1 : 2;
  const int64_t blocks = column_blocks(job.columns);
  for (int64_t number = first_tile; number < first_tile + tiles; ++number) {
    Vector rows[kTileRows][kVectors];
    for (int i = 0; i < kTileRows * kVectors; ++i) rows[i / kVectors][i % kVectors] = Simd::zero();
    for (int64_t first = 0; first < blocks; first += kRunBlocks) {
      const int64_t count = blocks - first < kRunBlocks ? blocks - first : kRunBlocks;
      const auto tile = stream.at(number, first, count);
      for (int row0 = 0; row0 < kTileRows; row0 += kRows) {
        Vector sums[kRows][kVectors];
        for (int i = 0; i < kRows * kVectors; ++i) sums[i / kVectors][i % kVectors] = rows[row0 + i / kVectors][i % kVectors];
        const float* x = job.in + first * kLanes;
        for (int64_t block = 0; block < count; block += kTogether) {
          prefetch_rows<kRows>(tile, block, row0);
#pragma GCC unroll 8
          for (int i = 0; i < kTogether; ++i, x += kLanes) {
#pragma GCC unroll 4
            for (int r = 0; r < kRows; ++r) {
              Vector values[kVectors];
              expand_row(tile, block, i, row0 + r, values);
#pragma GCC unroll 8
              for (int v = 0; v < kVectors; ++v) sums[r][v] = Simd::fma(Simd::load(x + v * kWidth), values[v], sums[r][v]);
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

template <class Stream>
AnyTiles any_tiles(Stream& stream) {
  return {&stream, &expand_run<Stream>};
}

template <class Stream>
[[gnu::noinline]] void multiply_expanded_stream(const MatmulJob& job, int64_t first_tile, int64_t tiles,
                                                const MatmulScratch& scratch) {
  Stream stream(job);
  ODMOE_INSTRUCTION_SET::multiply_expanded(job, first_tile, tiles, scratch, any_tiles(stream));
}

template <class Stream>
[[gnu::noinline]] void multiply_stream_of(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  if constexpr (kWidth > 1) {
    if (job.n == 1 && job.columns % kLanes == 0) {
      Stream stream(job);
      return multiply_one_token(job, first_tile, tiles, stream);
    }
  }
  multiply_expanded_stream<Stream>(job, first_tile, tiles, scratch);
}

}  // namespace
}  // namespace odmoe::cpu
