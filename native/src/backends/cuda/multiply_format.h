// The products of one format: each of the files multiply_FORMAT.cu has one of these.
#pragma once
#include "multiply_few.h"
#include "multiply_many.h"

namespace odmoe::cuda {

// These fill in the parts' first_block. All jobs of a launch have numbers of tokens for the same kernel: 1, 2, up to 4, up to 8, or
// more.
cudaError_t multiply_bf16(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_fp16(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_fp32(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_int8(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_nf4(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_fixed4(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_mxfp4(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_fp8(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_sliced84(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_sliced63(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_sliced42(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
// Block formats of one arithmetic share a reader (block_rows.h).
cudaError_t multiply_e4m3_blocks(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_zero4_blocks(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_zero8_blocks(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_addend4_blocks(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_addend5_blocks(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_q2_k(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_q3_k(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_q6_k(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_iq4_blocks(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);
cudaError_t multiply_nvfp4(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream);

// Most tokens that the kernel for a job of n tokens handles at once; 0: any number.
constexpr int tokens_at_once(int n) { return n <= 2 ? n : n <= 4 ? 4 : n <= 8 ? 8 : 0; }

// Warps that each multiprocessor should have before a warp gets more rows; with more rows a token's values are read less often.
inline constexpr int kWarpsForFourRows = 32;
inline constexpr int kWarpsForTwoRows = 16;

#if defined(__CUDACC__) || defined(ODMOE_SIMULATED_CUDA)
template <class Kernel>
cudaError_t launch_blocks(Kernel* kernel, const MultiplyLaunch& launch, int blocks, int threads, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, launch);
}

template <class Rows, int kRows, int kTokens, int kAhead>
cudaError_t launch_few(MultiplyLaunch& launch, cudaStream_t stream) {
  int blocks = 0;
  for (int i = 0; i < launch.count; ++i) {
    launch.parts[i].first_block = blocks;
    blocks += (row_groups(launch.parts[i], kRows) + kFewWarps - 1) / kFewWarps;
  }
  return launch_blocks(&multiply_few<Rows, kRows, kTokens, kAhead>, launch, blocks, kFewWarps * kWarp, stream);
}

template <class Rows, int kRows, int kBlocks>
cudaError_t launch_many(MultiplyLaunch& launch, cudaStream_t stream) {
  int blocks = 0;
  for (int i = 0; i < launch.count; ++i) {
    MultiplyPart& part = launch.parts[i];
    part.first_block = blocks;
    blocks += (row_groups(part, kRows) + kManyRowTiles - 1) / kManyRowTiles * ((part.n + kManyBlockTokens - 1) / kManyBlockTokens);
  }
  return launch_blocks(&multiply_many<Rows, kRows, kBlocks>, launch, blocks, kManyWarps * kWarp, stream);
}

// kMostRows: most rows of a warp for one token. kAhead: main pieces of a row in flight together, where a warp has one or two rows;
// 0 as in multiply_few. kManyRows: rows of a tile of many tokens. kManyBlocks: blocks of such tiles for which a multiprocessor has
// registers.
template <class Rows, int kMostRows, int kAhead, int kManyRows, int kManyBlocks>
cudaError_t multiply_rows(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream) {
  constexpr int kHalf = (kAhead + 1) / 2;
  constexpr int kAheadOfFour = Rows::kMain >= 8 ? kHalf : 1;
  constexpr int kAheadOfEight = kAhead == 0 ? 0 : 1;
  constexpr int kRowsOfEight = kManyRows / 2;
  int64_t rows = 0;
  for (int i = 0; i < launch.count; ++i) rows += launch.parts[i].rows;
  switch (tokens_at_once(launch.parts[0].n)) {
    case 1:
      if constexpr (kMostRows == 4) {
        if (rows / 4 >= int64_t{multiprocessors} * kWarpsForFourRows) return launch_few<Rows, 4, 1, kHalf>(launch, stream);
      }
      if (launch.gated || rows / 2 >= int64_t{multiprocessors} * kWarpsForTwoRows) {
        return launch_few<Rows, 2, 1, kAhead>(launch, stream);
      }
      return launch_few<Rows, 1, 1, kAhead>(launch, stream);
    case 2: return launch_few<Rows, 2, 2, kHalf>(launch, stream);
    case 4: return launch_few<Rows, 2, 4, kAheadOfFour>(launch, stream);
    case 8: return launch_few<Rows, kRowsOfEight, 8, kAheadOfEight>(launch, stream);
    default: return launch_many<Rows, kManyRows, kManyBlocks>(launch, stream);
  }
}

// The blocks are kManyBlocks of multiply_rows, for both slices and for the upper one alone.
template <int kBits, int kBlocksOfBoth, int kBlocksOfUpper>
cudaError_t multiply_slices(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream) {
  if (launch.reading == SliceReading::both) {
    return multiply_rows<SlicedRows<kBits, true>, 4, 1, 8, kBlocksOfBoth>(launch, multiprocessors, stream);
  }
  return multiply_rows<SlicedRows<kBits, false>, 4, 2, 8, kBlocksOfUpper>(launch, multiprocessors, stream);
}
#endif

}  // namespace odmoe::cuda
