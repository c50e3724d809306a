// The inner loop of products: some rows of a tile times some tokens, over a run of columns. It prefetches the next data meanwhile.
#pragma once
#include "kernels_tiles.h"

namespace odmoe::cpu {
namespace {

// Columns (in blocks) that a run covers when sums are parked between runs, or a tile is expanded run by run: the tokens' inputs and
// the weights stay in the first-level cache.
constexpr int64_t kRunBlocks = 32;
// Distance in bytes by which weights are prefetched ahead of their use.
constexpr int64_t kStreamAhead = 4096;
// Number of blocks by which a tile's block moves from the second-level cache to the first ahead of its use, and number of tiles
// that stream in together.
constexpr int kNearBlocks = kPairs == 1 ? 4 : 0;
constexpr int64_t kStreamTiles = 8;

template <class Tile, int kTokens>
constexpr bool kInRegisters = kPairs == 1 && kRowsAtOnce<Tile, kTokens> == kTileRows;

// The prefetches from memory during computation: kLines cache lines for each block of columns, kStep bytes further each time. Data
// that is multiplied soon goes to the first-level cache, other weights only to the second. Weights of the tile itself move from the
// second to the first kNear blocks ahead (0: without a prefetch).
template <int kLinesOf, int64_t kStepOf, int kLocalityOf, int kNearOf = 0>
struct Fetch {
  static constexpr int kLines = kLinesOf;
  static constexpr int64_t kStep = kStepOf;
  static constexpr int kLocality = kLocalityOf;
  static constexpr int kNear = kNearOf;
  // Each of kParts passes over a run fetches one part; the first pass fetches the first part.
  template <int kParts>
  using Part = Fetch<(kLinesOf + kParts - 1) / kParts, kStepOf / kParts, kLocalityOf, kNearOf>;
  template <int kParts>
  static const uint8_t* part(const uint8_t* ahead, int number, int64_t blocks) {
    return ahead + number * blocks * Part<kParts>::kStep;
  }
};
using FetchNothing = Fetch<0, 0, 2>;

// Expands the weights of two rows, together where the tile type can do that.
template <class Tile>
ODMOE_INLINE void expand_two_rows(const Tile& tile, int64_t block, int row, int pair, Vector (&low)[2], Vector (&high)[2]) {
  if constexpr (requires { Tile::kRowsTogether; }) {
    tile.expand_two_rows(block, row, pair, low, high);
  } else {
    for (int r = 0; r < 2; ++r) tile.expand(block, row + r, pair, low[r], high[r]);
  }
}

// sums += weights * x over `blocks` blocks, for kRows rows from row0 and one pair of vectors.
template <int kRows, int kTokens, class Ahead, class Tile>
ODMOE_INLINE void accumulate_blocks(const Tile& tile, int row0, int pair, const float* const* x, int64_t first, int64_t blocks,
                                    const uint8_t* ahead, Vector (&sums)[kRows][kTokens][2]) {
  constexpr bool kTwoRows = (kRows == 2 && kTokens > 3) || requires { Tile::kRowsTogether; };
  for (int64_t block = first; block < blocks; ++block) {
#pragma GCC unroll 8
    for (int line = 0; line < Ahead::kLines; ++line) {
      __builtin_prefetch(ahead + block * Ahead::kStep + line * 64, 0, Ahead::kLocality);
    }
    if constexpr (Ahead::kNear != 0) tile.template fetch<kRows>(block + Ahead::kNear, row0);
    const int64_t column = block * kLanes + pair * kWidth;
    if constexpr (kTwoRows) {
      // Every input is loaded once for both rows; without the pragma compilers load it with each product.
#pragma GCC unroll 2
      for (int r = 0; r < kRows; r += 2) {
        Vector low[2];
        Vector high[2];
        expand_two_rows(tile, block, row0 + r, pair, low, high);
#pragma GCC unroll 6
        for (int t = 0; t < kTokens; ++t) {
          Vector x_low = Simd::load(x[t] + column);
          Vector x_high = Simd::load(x[t] + column + 16);
          Simd::keep_in_register(x_low);
          Simd::keep_in_register(x_high);
          sums[r][t][0] = Simd::fma(x_low, low[0], sums[r][t][0]);
          sums[r + 1][t][0] = Simd::fma(x_low, low[1], sums[r + 1][t][0]);
          sums[r][t][1] = Simd::fma(x_high, high[0], sums[r][t][1]);
          sums[r + 1][t][1] = Simd::fma(x_high, high[1], sums[r + 1][t][1]);
        }
      }
    } else {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        Vector low, high;
        tile.expand(block, row0 + r, pair, low, high);
#pragma GCC unroll 6
        for (int t = 0; t < kTokens; ++t) {
          sums[r][t][0] = Simd::fma(Simd::load(x[t] + column), low, sums[r][t][0]);
          sums[r][t][1] = Simd::fma(Simd::load(x[t] + column + 16), high, sums[r][t][1]);
        }
      }
    }
  }
}

template <int kRows, int kTokens, class Ahead, class Tile>
ODMOE_INLINE void accumulate(const Tile& tile, int row0, int pair, const float* const* x, int64_t blocks, const uint8_t* ahead,
                             Vector (&sums)[kRows][kTokens][2]) {
  if constexpr (requires { Tile::kRowsTogether; }) {
    // Blocks with escapes are handled separately, each in its turn, because the order of the sums must not change.
    const uint8_t* escape = tile.escapes;
    for (int64_t block = 0;; ++block) {
      const int64_t escaped = tile.block_of(escape, blocks);
      accumulate_blocks<kRows, kTokens, Ahead>(tile, row0, pair, x, block, escaped, ahead, sums);
      if (escaped == blocks) return;
      block = escaped;
      alignas(64) uint8_t bf16[kBf16BlockBytes];
      escape = tile.expand_escaped(escape, bf16);
      accumulate_blocks<kRows, kTokens, FetchNothing>(Bf16Block{bf16}, row0, pair, x, block, block + 1, nullptr, sums);
    }
  } else {
    accumulate_blocks<kRows, kTokens, Ahead>(tile, row0, pair, x, 0, blocks, ahead, sums);
  }
}

}  // namespace
}  // namespace odmoe::cpu
