// Products of block formats. Their weights are multiplied as they are read for one token, and expanded to FP32 for more: run by run in
// the first-level cache, or for many tokens in groups of tiles in the second-level cache. Only the expansion is compiled for every
// format.
#pragma once
#include "kernels_blocks_streams.h"
#include "kernels_dot.h"

namespace odmoe::cpu {
namespace {

// The weights of a row's block as columns 0 to W - 1, W to 2 W - 1 and so on.
template <class Tile>
ODMOE_INLINE void expand_row(const Tile& tile, int64_t block, int row, Vector (&values)[kVectors]) {
  if constexpr (requires { requires Tile::kRows; }) {
    tile.expand_row(block, row, values);
  } else {
#pragma GCC unroll 4
    for (int pair = 0; pair < kPairs; ++pair) tile.expand(block, row, pair, values[pair], values[kPairs + pair]);
  }
}

// Writes the weights of some blocks of a tile in the fp32 layout.
template <class Stream>
[[gnu::noinline]] void expand_run(void* stream, int64_t tile, int64_t block, int64_t blocks, float* out) {
  const auto weights = static_cast<Stream*>(stream)->at(tile, block, blocks);
  for (int64_t i = 0; i < blocks; ++i) {
    for (int row = 0; row < kTileRows; ++row, out += kLanes) {
      Vector values[kVectors];
      expand_row(weights, i, row, values);
      for (int v = 0; v < kVectors; ++v) Simd::store(out + v * kWidth, values[v]);
    }
  }
}

// The stream of any format.
struct AnyStream {
  void* stream;
  void (*expand)(void* stream, int64_t tile, int64_t block, int64_t blocks, float* out);
};

// A tile of any format, expanded run by run.
struct ExpandedRuns {
  using Tile = Fp32Tile;
  AnyStream any;
  int64_t tile;
  alignas(64) float run[kRunBlocks * kTileRows * kLanes];
  ODMOE_INLINE Tile at(int64_t, int64_t block, int64_t blocks) {
    any.expand(any.stream, tile, block, blocks, run);
    return Tile(reinterpret_cast<const uint8_t*>(run), 0, 0);
  }
};

[[gnu::noinline]] void multiply_few_tokens(const MatmulJob& job, int64_t first_tile, int64_t tiles, float* scratch, AnyStream any) {
  ExpandedRuns weights;
  weights.any = any;
  Panel panel{first_tile, 1, 0, kRunBlocks, nullptr};
  for (int64_t tile = first_tile; tile < first_tile + tiles; ++tile) {
    weights.tile = tile;
    panel.first_tile = tile;
    multiply_tokens<FetchNothing, 1, kMostTokensAtOnce>(job, panel, job.n, weights, scratch);
  }
}

template <int64_t kBlockBytes>
[[gnu::noinline]] void multiply_many_tokens(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch,
                                            AnyStream any) {
  const int64_t blocks = column_blocks(job.columns);
  multiply_groups<kBlockBytes>(job, first_tile, tiles, scratch.sums, [&](int64_t first, int64_t count) {
    float* out = reinterpret_cast<float*>(scratch.expanded);
    for (int64_t tile = first; tile < first + count; ++tile) {
      for (int64_t block = 0; block < blocks; block += kRunBlocks) {
        const int64_t run = blocks - block < kRunBlocks ? blocks - block : kRunBlocks;
        any.expand(any.stream, tile, block, run, out);
        out += run * kTileRows * kLanes;
      }
    }
    return StoredTiles<Fp32Tile>{scratch.expanded, blocks * Fp32Tile::kBlockBytes, job.columns};
  });
}

// One token: the sums of some rows at a time stay in registers.
template <class Stream>
[[gnu::noinline]] void multiply_one_token(const MatmulJob& job, int64_t first_tile, int64_t tiles, Stream& stream) {
  constexpr int kRows = kPairs == 1 ? kTileRows : 2;
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
        for (int64_t block = 0; block < count; ++block, x += kLanes) {
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            Vector values[kVectors];
            expand_row(tile, block, row0 + r, values);
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) sums[r][v] = Simd::fma(Simd::load(x + v * kWidth), values[v], sums[r][v]);
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
void multiply_stream_of(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  Stream stream(job);
  if (job.n == 1 && job.columns % kLanes == 0) return multiply_one_token(job, first_tile, tiles, stream);
  const AnyStream any{&stream, &expand_run<Stream>};
  if (job.n <= kMostTokensAtOnce) return multiply_few_tokens(job, first_tile, tiles, scratch.sums, any);
  constexpr int64_t kLines = (Stream::kBlockBytes + 63) / 64;
  multiply_many_tokens<kLines * 64>(job, first_tile, tiles, scratch, any);
}

template <int kBits>
void multiply_grouped(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  const bool wide = grouped_codes(job.format).scales == ScaleType::fp32;
  if (wide) return multiply_stream_of<GroupedStream<kBits, true>>(job, first_tile, tiles, scratch);
  multiply_stream_of<GroupedStream<kBits, false>>(job, first_tile, tiles, scratch);
}

void multiply_blocks(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  switch (kind_of(job.format)) {
    case WeightFormat::fp8_row: return multiply_stream_of<E4m3Stream<WeightFormat::fp8_row>>(job, first_tile, tiles, scratch);
    case WeightFormat::fp8_tile: return multiply_stream_of<E4m3Stream<WeightFormat::fp8_tile>>(job, first_tile, tiles, scratch);
    case WeightFormat::mxfp8: return multiply_stream_of<E4m3Stream<WeightFormat::mxfp8>>(job, first_tile, tiles, scratch);
    case WeightFormat::nvfp4_multiplied: return multiply_stream_of<Nvfp4Stream<false>>(job, first_tile, tiles, scratch);
    case WeightFormat::nvfp4_divided: return multiply_stream_of<Nvfp4Stream<true>>(job, first_tile, tiles, scratch);
    case WeightFormat::q4_0: return multiply_stream_of<GgufStream<Q4_0>>(job, first_tile, tiles, scratch);
    case WeightFormat::q4_1: return multiply_stream_of<GgufStream<Q4_1>>(job, first_tile, tiles, scratch);
    case WeightFormat::q5_0: return multiply_stream_of<GgufStream<Q5_0>>(job, first_tile, tiles, scratch);
    case WeightFormat::q5_1: return multiply_stream_of<GgufStream<Q5_1>>(job, first_tile, tiles, scratch);
    case WeightFormat::q8_0: return multiply_stream_of<GgufStream<Q8_0>>(job, first_tile, tiles, scratch);
    case WeightFormat::q2_k: return multiply_stream_of<GgufStream<Q2K>>(job, first_tile, tiles, scratch);
    case WeightFormat::q3_k: return multiply_stream_of<GgufStream<Q3K>>(job, first_tile, tiles, scratch);
    case WeightFormat::q4_k: return multiply_stream_of<GgufStream<Q4K>>(job, first_tile, tiles, scratch);
    case WeightFormat::q5_k: return multiply_stream_of<GgufStream<Q5K>>(job, first_tile, tiles, scratch);
    case WeightFormat::q6_k: return multiply_stream_of<GgufStream<Q6K>>(job, first_tile, tiles, scratch);
    case WeightFormat::iq4_nl: return multiply_stream_of<GgufStream<Iq4Nl>>(job, first_tile, tiles, scratch);
    case WeightFormat::iq4_xs: return multiply_stream_of<GgufStream<Iq4Xs>>(job, first_tile, tiles, scratch);
    case WeightFormat::grouped4: return multiply_grouped<4>(job, first_tile, tiles, scratch);
    case WeightFormat::grouped8: return multiply_grouped<8>(job, first_tile, tiles, scratch);
    default: break;
  }
}

}  // namespace
}  // namespace odmoe::cpu
