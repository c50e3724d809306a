// The matrix product. BF16 is multiplied as it is; of all other formats more than a few tokens multiply what they are expanded to:
// BF16 (fixed4, mxfp4) or FP32.
#include "kernels_fixed4.h"
#include "kernels_mxfp4.h"
#include "kernels_streams.h"

namespace odmoe::cpu {
namespace {

template <>
constexpr int kTokensAtOnce<Fixed4Tile<Simd>> = Simd::kFixed4Tokens;

// A tile of any format, expanded run by run in the first-level cache.
template <class TileOf>
struct ExpandedRuns {
  using Tile = TileOf;
  AnyTiles any;
  int64_t tile = 0;
  alignas(64) uint8_t run[kRunBlocks * Tile::kBlockBytes];
  ODMOE_INLINE Tile at(int64_t, int64_t block, int64_t blocks) {
    any.expand(any.stream, tile, block, blocks, run);
    return Tile(run, 0, 0);
  }
};

// Without vectors it is the fused operations that take the time, and an expansion for every token costs little.
constexpr int kFewTokens = kWidth == 1 ? 1 : kMostTokensAtOnce;

template <class Tile>
[[gnu::noinline]] void multiply_few_tokens(const MatmulJob& job, int64_t first_tile, int64_t tiles, float* scratch,
                                           const AnyTiles& any) {
  ExpandedRuns<Tile> weights;
  weights.any = any;
  Panel panel{first_tile, 1, 0, kRunBlocks, nullptr};
  for (int64_t tile = first_tile; tile < first_tile + tiles; ++tile) {
    weights.tile = tile;
    panel.first_tile = tile;
    for (panel.first_token = 0; panel.first_token < job.n; panel.first_token += kFewTokens) {
      const int left = job.n - panel.first_token;
      multiply_tokens<FetchNothing, 1, kFewTokens>(job, panel, left < kFewTokens ? left : kFewTokens, weights, scratch);
    }
  }
}

// A group of tiles is expanded once to the second-level cache, for all tokens. They prefetch up to 128 bytes of each block of columns
// of the next group; the expansion prefetches the rest.
template <class Tile>
[[gnu::noinline]] void multiply_many_tokens(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch,
                                            const AnyTiles& any) {
  const int64_t blocks = column_blocks(job.columns);
  multiply_groups<128>(job, first_tile, tiles, scratch.sums, [&](int64_t first, int64_t count) {
    uint8_t* out = scratch.expanded;
    for (int64_t tile = first; tile < first + count; ++tile) {
      for (int64_t block = 0; block < blocks; block += kRunBlocks) {
        const int64_t run = blocks - block < kRunBlocks ? blocks - block : kRunBlocks;
        any.expand(any.stream, tile, block, run, out);
        out += run * Tile::kBlockBytes;
      }
    }
    return StoredTiles<Tile>{scratch.expanded, blocks * Tile::kBlockBytes, job.columns};
  });
}

template <class Tile>
void multiply_expanded_to(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch,
                          const AnyTiles& any) {
  if constexpr (kWidth > 1) {
    if (job.n > kMostTokensAtOnce) return multiply_many_tokens<Tile>(job, first_tile, tiles, scratch, any);
  }
  multiply_few_tokens<Tile>(job, first_tile, tiles, scratch.sums, any);
}

// Tiles that a reader turns into the bf16 layout.
template <class Reader>
struct ReadTiles {
  const MatmulJob& job;
  int64_t bytes;
  Reader reader;
  static void expand(void* self, int64_t tile, int64_t block, int64_t blocks, void* out) {
    ReadTiles& tiles = *static_cast<ReadTiles*>(self);
    if (block == 0) tiles.reader = Reader(tiles.job.weights + tile * tiles.bytes, tiles.job.columns);
    tiles.reader.template expand<kStreamAhead>(block, blocks, static_cast<uint8_t*>(out));
  }
};

template <class Reader>
void multiply_as_bf16(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  ReadTiles<Reader> read{job, tile_bytes(job.format, job.columns), Reader()};
  multiply_expanded_to<Bf16Tile>(job, first_tile, tiles, scratch, {&read, &read.expand});
}

// A tile of a plain format that is prefetched as it is read.
template <class Tile>
struct PlainTile {
  Tile tile;
  const uint8_t* ahead;
  ODMOE_INLINE void expand(int64_t block, int row, int pair, Vector& low, Vector& high) const {
    if (row == 0 && pair == 0) {
      for (int64_t line = 0; line < Tile::kBlockBytes; line += 64) __builtin_prefetch(ahead + block * Tile::kBlockBytes + line);
    }
    tile.expand(block, row, pair, low, high);
  }
};

template <class TileOf>
struct PlainStream {
  using Tile = PlainTile<TileOf>;
  const uint8_t* weights;
  int64_t bytes;
  int64_t columns;
  explicit PlainStream(const MatmulJob& job)
      : weights(job.weights), bytes(tile_bytes(job.format, job.columns)), columns(job.columns) {}
  ODMOE_INLINE Tile at(int64_t tile, int64_t block, int64_t) {
    const uint8_t* const own = weights + tile * bytes;
    return {TileOf(own, columns, block), own + block * TileOf::kBlockBytes + kStreamAhead};
  }
};

void multiply_bf16(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  if constexpr (kWidth == 1) {
    multiply_expanded_stream<PlainStream<Bf16Tile>>(job, first_tile, tiles, scratch);
  } else {
    multiply_tiles<Bf16Tile>(job, first_tile, tiles, scratch);
  }
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
  multiply_as_bf16<Mxfp4Reader>(job, first_tile, tiles, scratch);
}

template <class Set>
void multiply_fixed4_tiles(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  if constexpr (Set::kFixed4Tokens > 0) {
    if (job.n <= Set::kFixed4Tokens) return multiply_stream<Fixed4Tile<Set>>(job, first_tile, tiles, scratch.sums);
  }
  multiply_as_bf16<Fixed4Reader>(job, first_tile, tiles, scratch);
}

void multiply_format(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  switch (job.format) {
    case WeightFormat::bf16: return multiply_bf16(job, first_tile, tiles, scratch);
    case WeightFormat::fp16: return multiply_stream_of<PlainStream<Fp16Tile>>(job, first_tile, tiles, scratch);
    case WeightFormat::fp32: return multiply_stream_of<PlainStream<Fp32Tile>>(job, first_tile, tiles, scratch);
    case WeightFormat::int8: return multiply_stream_of<PlainStream<Int8Tile>>(job, first_tile, tiles, scratch);
    case WeightFormat::nf4: return multiply_stream_of<PlainStream<Nf4Tile>>(job, first_tile, tiles, scratch);
    case WeightFormat::fixed4: return multiply_fixed4_tiles<Simd>(job, first_tile, tiles, scratch);
    case WeightFormat::mxfp4: return multiply_mxfp4_tiles<Simd>(job, first_tile, tiles, scratch);
    case WeightFormat::sliced84:
    case WeightFormat::sliced63:
    case WeightFormat::sliced42: return ODMOE_INSTRUCTION_SET::multiply_slices(job, first_tile, tiles, scratch);
    default: break;
  }
  const bool gguf = block_shape(static_cast<Split>(job.format)).columns != 0;
  return gguf ? ODMOE_INSTRUCTION_SET::multiply_gguf(job, first_tile, tiles, scratch)
              : ODMOE_INSTRUCTION_SET::multiply_blocks(job, first_tile, tiles, scratch);
}

}  // namespace

namespace ODMOE_INSTRUCTION_SET {

void multiply_expanded(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch, const AnyTiles& any) {
  multiply_expanded_to<Fp32Tile>(job, first_tile, tiles, scratch, any);
}

void matmul(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  multiply_format(job, first_tile, tiles, scratch);
  Simd::leave();
}

}  // namespace ODMOE_INSTRUCTION_SET
}  // namespace odmoe::cpu
