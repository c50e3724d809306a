// Products by tensor cores, for `arithmetic: fast`: x is rounded to BF16, and FP32 sums are added in the device's own order. A row
// of the bf16 layout (weight_layout.h) has its columns in another order, filled up with zeros to a multiple of 32. A dot product
// does not depend on the order when x has the same order, so tiles of weights are read as they are stored.
#include <cuda_bf16.h>
#include <mma.h>

#include "activations.h"
#include "grid_launch.h"
#include "kernels.h"
#include "weight_layout.h"
#include "weight_values.h"

namespace odmoe::cuda {
namespace {

using nvcuda::wmma::accumulator;
using nvcuda::wmma::col_major;
using nvcuda::wmma::fragment;
using nvcuda::wmma::matrix_a;
using nvcuda::wmma::matrix_b;
using nvcuda::wmma::row_major;

constexpr int kTile = 16;
constexpr int kTensorWarps = 4;
constexpr int kTokenTiles = 2;  // of a warp, with one tile of rows (gated: a tile of gate rows and one of up rows)
constexpr int kArrangeThreads = 256;
constexpr int kLeastTokens = 8;
constexpr int kBlockTokens = kTile * kTokenTiles;
constexpr int kBlockOutputs = kTile * kTensorWarps;
// Arranging uses one grid row for each token, filled up to whole blocks; computing uses one grid row for every block of outputs.
constexpr int kMostTokens = kMostGridRows / kBlockTokens * kBlockTokens;
constexpr int64_t kMostOutputs = int64_t{kMostGridRows} * kBlockOutputs;

using Sums = fragment<accumulator, kTile, kTile, kTile, float>;

struct TensorJob {
  const __nv_bfloat16* weights;
  const __nv_bfloat16* tokens;  // [n, filled up to whole tiles of tokens][length]
  float* out;
  int64_t out_stride;
  int outputs;
  int n;
  int length;  // columns of a row in the layout
  GluShape glu;
};

struct ArrangeJob {
  uint16_t* arranged;
  const float* in;
  int64_t in_stride;
  int columns;
  int n;
};

constexpr int64_t padded_tokens(int n) { return (n + kBlockTokens - 1) / kBlockTokens * kBlockTokens; }

// Each block row arranges one token: x as BF16 in the layout's order of columns, zeros where there is no column or no token.
__global__ void __launch_bounds__(kArrangeThreads) arrange_tokens(const __grid_constant__ ArrangeJob job) {
  constexpr int kMain = main_steps(WeightFormat::bf16);
  const int column = static_cast<int>(blockIdx.x) * kArrangeThreads + static_cast<int>(threadIdx.x);
  const int token = static_cast<int>(blockIdx.y);
  const int steps = steps_of(job.columns);
  if (column >= steps * kLanes) return;
  const float x = token < job.n && column < job.columns ? job.in[token * job.in_stride + column] : 0.0f;
  const Piece piece = piece_of(steps, kMain, column / kLanes);
  const int64_t place = value_place(piece, column % kLanes, column / kLanes - piece.first);
  job.arranged[int64_t{token} * steps * kLanes + place] = static_cast<uint16_t>(bf16_of_float(x));
}

// Writes the warp's tile of sums for one tile of tokens. It goes through shared memory, because only there the place of each
// element is known.
__device__ void write_tile(const TensorJob& job, const Sums& sums, float (&tile)[kTile][kTile], int first_output, int first_token,
                           int lane) {
  nvcuda::wmma::store_matrix_sync(&tile[0][0], sums, kTile, nvcuda::wmma::mem_col_major);
  __syncwarp();
  for (int i = lane; i < kTile * kTile; i += kWarp) {
    const int token = first_token + i / kTile;
    if (token < job.n) job.out[token * job.out_stride + first_output + i % kTile] = tile[i / kTile][i % kTile];
  }
  __syncwarp();
}

// Blocks that share weights are neighbours, so that all but the first read them from the second-level cache.
template <bool kGated>
__global__ void __launch_bounds__(kTensorWarps* kWarp) multiply_tiles(const __grid_constant__ TensorJob job) {
  constexpr int kHalves = kGated ? 2 : 1;
  // Tiles must be stored at multiples of 32 bytes.
  alignas(32) __shared__ float tiles[kTensorWarps][kTile][kTile];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int first_output = static_cast<int>(blockIdx.y) * kBlockOutputs + warp * kTile;
  const int first_token = static_cast<int>(blockIdx.x) * kBlockTokens;
  if (first_output >= job.outputs) return;
  Sums sums[kHalves][kTokenTiles];
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t) nvcuda::wmma::fill_fragment(sums[h][t], 0.0f);
  }
  const __nv_bfloat16* const rows = job.weights + int64_t{first_output} * job.length;
  const __nv_bfloat16* const tokens = job.tokens + int64_t{first_token} * job.length;
  for (int k = 0; k < job.length; k += kTile) {
    fragment<matrix_b, kTile, kTile, kTile, __nv_bfloat16, col_major> x[kTokenTiles];
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t) {
      nvcuda::wmma::load_matrix_sync(x[t], tokens + int64_t{t} * kTile * job.length + k, static_cast<unsigned>(job.length));
    }
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      fragment<matrix_a, kTile, kTile, kTile, __nv_bfloat16, row_major> weights;
      nvcuda::wmma::load_matrix_sync(weights, rows + int64_t{h} * job.outputs * job.length + k, static_cast<unsigned>(job.length));
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) nvcuda::wmma::mma_sync(sums[h][t], weights, x[t], sums[h][t]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {
    if constexpr (kGated) {
      // Fragments of one kind have the same order of elements.
#pragma unroll
      for (int i = 0; i < Sums::num_elements; ++i) {
        sums[0][t].x[i] = glu_of(sums[0][t].x[i], sums[kHalves - 1][t].x[i], job.glu);
      }
    }
    write_tile(job, sums[0][t], tiles[warp], first_output, first_token + t * kTile, lane);
  }
}

template <bool kGated>
cudaError_t launch_tiles(const TensorJob& job, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks_for(job.n, kBlockTokens), blocks_for(job.outputs, kBlockOutputs));
  config.blockDim = dim3(kTensorWarps * kWarp);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, &multiply_tiles<kGated>, job);
}

}  // namespace

// Rows must form whole tiles, also in gated halves, and there must be enough tokens that the tiles are not mostly empty. There are
// no biases, because the row of a tile's element is not known where the GLU is computed.
bool tensor_cores_take(const MultiplyJob& job, const DeviceTraits& device) {
  return job.format == WeightFormat::bf16 && job.biases == nullptr && job.n >= kLeastTokens && job.n <= kMostTokens &&
         job.rows > 0 && job.rows <= kMostOutputs && job.rows % (2 * kTile) == 0 && device.capability >= 80;
}

uint64_t tensor_core_scratch_bytes(const MultiplyJob& job) {
  return static_cast<uint64_t>(padded_tokens(job.n) * row_bytes(WeightFormat::bf16, job.columns));
}

cudaError_t launch_tensor_core_multiply(const MultiplyJob& job, const GluShape* host_glu, void* scratch, cudaStream_t stream) {
  const int length = steps_of(job.columns) * kLanes;
  const ArrangeJob arrange{static_cast<uint16_t*>(scratch), job.in, job.in_stride, static_cast<int>(job.columns), job.n};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks_for(length, kArrangeThreads), static_cast<unsigned>(padded_tokens(job.n)));
  config.blockDim = dim3(kArrangeThreads);
  config.stream = stream;
  const cudaError_t error = cudaLaunchKernelEx(&config, &arrange_tokens, arrange);
  if (error != cudaSuccess) return error;
  const int rows = static_cast<int>(job.rows);
  const TensorJob tiles{reinterpret_cast<const __nv_bfloat16*>(job.weights),
                        static_cast<const __nv_bfloat16*>(scratch),
                        job.out,
                        job.out_stride,
                        host_glu != nullptr ? rows / 2 : rows,
                        job.n,
                        length,
                        host_glu != nullptr ? *host_glu : GluShape{}};
  return host_glu != nullptr ? launch_tiles<true>(tiles, stream) : launch_tiles<false>(tiles, stream);
}

}  // namespace odmoe::cuda
