// Turns rows of a matrix back into FP32. A warp reads one piece of one row: calls ask for few rows, and these should use the whole
// device.
#include "grid_launch.h"
#include "kernels.h"
#include "weight_rows.h"

namespace odmoe::cuda {
namespace {

constexpr int kEmbedWarps = 4;

struct EmbedRows {
  float* out;
  const uint8_t* storage;
  const int32_t* ids;
  const float* row_scales;  // for formats with row scales
  int columns;
  int n;
};

template <class Rows, int V>
__device__ __forceinline__ void embed_piece(float* out, typename Rows::Row& row, const Piece& piece, int columns, int lane,
                                            const float* table, float scale) {
  if (piece.steps == V) {
    const Place place{piece.first, V, 0};
    const auto vector = Rows::template load<V, true>(row, place, lane);
    // For a fixed4 row this skips the escapes of earlier pieces, of which there are few.
    const auto values = Rows::template expand<V>(row, vector, place, lane);
#pragma unroll
    for (int s = 0; s < V; ++s) {
      const int column = (piece.first + s) * kLanes + lane;
      if (column >= columns) continue;
      const float value = Rows::template value<V>(values, s, table);
      out[column] = Rows::kRowScales ? value * scale : value;
    }
  } else if constexpr (V > 1) {
    embed_piece<Rows, V / 2>(out, row, piece, columns, lane, table, scale);
  }
}

template <class Rows>
__global__ void __launch_bounds__(kEmbedWarps* kWarp) embed_rows(const __grid_constant__ EmbedRows job) {
  __shared__ float table[Rows::Table::kSize];
  Rows::Table::fill(table);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int steps = steps_of(job.columns);
  const auto pieces = static_cast<unsigned>(piece_count(steps, Rows::kMain));
  // 32 bits are enough: 2^32 pieces are more than devices hold.
  const unsigned warp = blockIdx.x * kEmbedWarps + threadIdx.x / kWarp;
  const int64_t token = warp / pieces;
  if (token >= job.n) return;
  typename Rows::Row row[1] = {Rows::row(job.storage, job.columns, job.ids[token])};
  Rows::start(row);
  const float scale = Rows::kRowScales ? job.row_scales[job.ids[token]] : 1;
  embed_piece<Rows, Rows::kMain>(job.out + token * job.columns, row[0],
                                 piece_at(steps, Rows::kMain, static_cast<int>(warp % pieces)), job.columns, lane, table, scale);
}

template <class Rows>
cudaError_t launch_rows(const EmbedRows& job, cudaStream_t stream) {
  const int64_t warps = int64_t{job.n} * piece_count(steps_of(job.columns), Rows::kMain);
  if (warps == 0) return cudaSuccess;
  return launch_grid(dim3(blocks_for(warps, kEmbedWarps)), kEmbedWarps * kWarp, stream, &embed_rows<Rows>, job);
}

}  // namespace

cudaError_t launch_embed(float* out, WeightFormat format, const uint8_t* storage, int64_t rows, int64_t columns, const int32_t* ids,
                         int n, cudaStream_t stream) {
  const float* const scales =
      format == WeightFormat::int8 ? reinterpret_cast<const float*>(storage + row_scales_offset(rows, columns)) : nullptr;
  const EmbedRows job{out, storage, ids, scales, static_cast<int>(columns), n};
  switch (format) {
    case WeightFormat::bf16: return launch_rows<Bf16Rows>(job, stream);
    case WeightFormat::fp16: return launch_rows<Fp16Rows>(job, stream);
    case WeightFormat::fp32: return launch_rows<Fp32Rows>(job, stream);
    case WeightFormat::int8: return launch_rows<Int8Rows>(job, stream);
    case WeightFormat::nf4: return launch_rows<Nf4Rows>(job, stream);
    case WeightFormat::fixed4: return launch_rows<Fixed4Rows>(job, stream);
    default:
      if (is_blocks(format)) return launch_embed_blocks(out, format, storage, rows, columns, ids, n, stream);
      return cudaErrorInvalidValue;
  }
}

}  // namespace odmoe::cuda
