// Rows of a matrix back as FP32: a warp reads a row's pieces one after the other, as the products do.
#include "kernels.h"
#include "weight_rows.h"

namespace odmoe::cuda {
namespace {

constexpr int kEmbedWarps = 4;

struct EmbedRows {
  float* out;
  const uint8_t* storage;
  const int32_t* ids;
  int columns;
  int n;
};

template <class Rows, int V>
__device__ __forceinline__ void embed_piece(float* out, typename Rows::Row& row, int first, int columns, int lane) {
  const Place place{first, V, 0};
  const auto vector = Rows::template load<V, true>(row, place, lane);
  const auto values = Rows::template expand<V>(row, vector, place, lane);
#pragma unroll
  for (int s = 0; s < V; ++s) {
    const int column = (first + s) * kLanes + lane;
    if (column < columns) out[column] = Rows::template value<V>(values, s, nullptr);
  }
}

template <class Rows, int V>
__device__ __forceinline__ void embed_rest(float* out, typename Rows::Row& row, int first, int steps, int columns, int lane) {
  if ((steps & V) != 0) {
    embed_piece<Rows, V>(out, row, first, columns, lane);
    first += V;
  }
  if constexpr (V > 1) embed_rest<Rows, V / 2>(out, row, first, steps, columns, lane);
}

template <class Rows>
__global__ void __launch_bounds__(kEmbedWarps* kWarp) embed_rows(const __grid_constant__ EmbedRows job) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t token = int64_t{blockIdx.x} * kEmbedWarps + threadIdx.x / kWarp;
  if (token >= job.n) return;
  float* const out = job.out + token * job.columns;
  typename Rows::Row row = Rows::row(job.storage, job.columns, job.ids[token]);
  const int steps = steps_of(job.columns);
  int first = 0;
  for (; first + Rows::kMain <= steps; first += Rows::kMain) embed_piece<Rows, Rows::kMain>(out, row, first, job.columns, lane);
  embed_rest<Rows, Rows::kMain / 2>(out, row, first, steps, job.columns, lane);
}

template <class Rows>
cudaError_t launch_rows(const EmbedRows& job, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>((job.n + kEmbedWarps - 1) / kEmbedWarps));
  config.blockDim = dim3(kEmbedWarps * kWarp);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, &embed_rows<Rows>, job);
}

}  // namespace

cudaError_t launch_embed(float* out, WeightFormat format, const uint8_t* storage, int64_t, int64_t columns, const int32_t* ids,
                         int n, cudaStream_t stream) {
  const EmbedRows job{out, storage, ids, static_cast<int>(columns), n};
  switch (format) {
    case WeightFormat::bf16:
      return launch_rows<Bf16Rows>(job, stream);
    case WeightFormat::fp16:
      return launch_rows<Fp16Rows>(job, stream);
    case WeightFormat::fp32:
      return launch_rows<Fp32Rows>(job, stream);
    case WeightFormat::fixed4:
      return launch_rows<Fixed4Rows>(job, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace odmoe::cuda
