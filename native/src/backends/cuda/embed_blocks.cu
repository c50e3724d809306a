// Turns rows of a matrix in a block format back into FP32; columns stay in the order in which they are stored. A warp reads some steps of
// one row.
#include "block_rows.h"
#include "grid_launch.h"
#include "kernels.h"

namespace odmoe::cuda {
namespace {

constexpr int kEmbedWarps = 4;
constexpr int kEmbedSteps = 8;

struct EmbedBlocks {
  float* out;
  const uint8_t* storage;
  const int32_t* ids;  // null: 0, 1, ...
  BlockForm form;
  int rows;
  int columns;
  int n;
};

template <class Rows>
__global__ void __launch_bounds__(kEmbedWarps* kWarp) embed_blocks(const __grid_constant__ EmbedBlocks job) {
  __shared__ float table[Rows::Table::kSize];
  __shared__ typename Rows::template Shared<1> of_warps[kEmbedWarps];
  Rows::Table::fill(table);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int steps = steps_of(job.columns);
  const auto parts = static_cast<unsigned>((steps + kEmbedSteps - 1) / kEmbedSteps);
  // 32 bits are enough: 2^32 of them are more than devices hold.
  const unsigned warp = blockIdx.x * kEmbedWarps + threadIdx.x / kWarp;
  const int64_t token = warp / parts;
  if (token >= job.n) return;
  const int number = job.ids == nullptr ? static_cast<int>(token) : job.ids[token];
  const auto row = Rows::row(job.form, job.storage, job.rows, job.columns, number);
  const int first = static_cast<int>(warp % parts) * kEmbedSteps;
  for (int step = first; step < steps && step < first + kEmbedSteps; ++step) {
    const Piece piece = piece_of(steps, Rows::kMain, step);
    const Place place{piece.first, piece.steps, step - piece.first};
    const auto vector = Rows::template load<1, true>(row, place, lane);
    const auto values = Rows::template expand<1>(row, vector, place, of_warps[threadIdx.x / kWarp], lane);
    __syncwarp();
    const float value = Rows::template value<1>(values, 0, table);
    __syncwarp();
    const int column = step * kLanes + lane;
    if (column < job.columns) job.out[token * job.columns + column] = value;
  }
}

template <class Form>
cudaError_t launch_form(const EmbedBlocks& job, cudaStream_t stream) {
  const int64_t warps = int64_t{job.n} * ((steps_of(job.columns) + kEmbedSteps - 1) / kEmbedSteps);
  if (warps == 0) return cudaSuccess;
  return launch_grid(dim3(blocks_for(warps, kEmbedWarps)), kEmbedWarps * kWarp, stream, &embed_blocks<BlockRows<Form>>, job);
}

}  // namespace

cudaError_t launch_embed_blocks(float* out, WeightFormat format, const uint8_t* storage, int64_t rows, int64_t columns,
                                const int32_t* ids, int n, cudaStream_t stream) {
  const EmbedBlocks job{out, storage, ids, block_form(format), static_cast<int>(rows), static_cast<int>(columns), n};
  switch (kind_of(format)) {
    case WeightFormat::fp8_row:
    case WeightFormat::fp8_tile:
    case WeightFormat::mxfp8: return launch_form<E4m3Form>(job, stream);
    case WeightFormat::nvfp4_multiplied:
    case WeightFormat::nvfp4_divided: return launch_form<Nvfp4Form>(job, stream);
    case WeightFormat::q4_0:
    case WeightFormat::grouped4: return launch_form<ZeroForm<4>>(job, stream);
    case WeightFormat::q8_0:
    case WeightFormat::grouped8: return launch_form<ZeroForm<8>>(job, stream);
    case WeightFormat::q4_1:
    case WeightFormat::q4_k: return launch_form<AddendForm<4>>(job, stream);
    case WeightFormat::q5_0:
    case WeightFormat::q5_1:
    case WeightFormat::q5_k: return launch_form<AddendForm<5>>(job, stream);
    case WeightFormat::q2_k: return launch_form<Q2kForm>(job, stream);
    case WeightFormat::q3_k: return launch_form<Q3kForm>(job, stream);
    case WeightFormat::q6_k: return launch_form<Q6kForm>(job, stream);
    case WeightFormat::iq4_nl:
    case WeightFormat::iq4_xs: return launch_form<Iq4Form>(job, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace odmoe::cuda
