// Writes rows from their planes into the layout of weight_layout.h. A warp makes a piece of a row: every lane gathers its own
// values (32 columns apart, so that the warp accesses adjacent values) and writes them as one vector.
#include "kernels.h"
#include "weight_layout.h"
#include "weight_values.h"

namespace odmoe::cuda {
namespace {

constexpr int kWriteWarps = 8;
constexpr int kWriteThreads = kWriteWarps * kWarp;

template <int kWords>
struct Words {
  uint32_t words[kWords];
};

// Stores the low kBytes bytes of the words.
template <int kBytes, int kWords>
__device__ __forceinline__ void store_bytes(uint8_t* to, const Words<kWords>& from) {
  if constexpr (kBytes == 1) {
    *to = static_cast<uint8_t>(from.words[0]);
  } else if constexpr (kBytes == 2) {
    *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(from.words[0]);
  } else if constexpr (kBytes == 4) {
    *reinterpret_cast<uint32_t*>(to) = from.words[0];
  } else if constexpr (kBytes == 8) {
    *reinterpret_cast<uint2*>(to) = make_uint2(from.words[0], from.words[1]);
  } else {
    *reinterpret_cast<uint4*>(to) = make_uint4(from.words[0], from.words[1], from.words[2], from.words[3]);
  }
}

// One row's values; 0 behind the last column.
template <Split kSplit>
struct RowValues {
  ShippedValues<kSplit> values;
  int columns;

  __device__ __forceinline__ uint32_t bits(int column) const { return column < columns ? values.bits(column) : 0u; }
  __device__ __forceinline__ float value(int column) const { return column < columns ? values.value(column) : 0.0f; }

  __device__ __forceinline__ uint32_t code(int column) const { return column < columns ? values.code(column) : 0u; }

  // The bits of a value in the format.
  template <WeightFormat kFormat>
  __device__ __forceinline__ uint32_t converted(int column) const {
    using Values = ShippedValues<kSplit>;
    if constexpr (kFormat == WeightFormat::bf16) {
      return Values::kBf16 ? bits(column) : bf16_of_float(value(column));
    } else if constexpr (kFormat == WeightFormat::fp16) {
      return Values::kFp16 ? bits(column) : half_of_float(value(column));
    } else {
      return bits_of_float(value(column));
    }
  }
};

__device__ __forceinline__ uint32_t greatest_of_warp(uint32_t x) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2) x = max(x, __shfl_xor_sync(kFullWarp, x, apart));
  return x;
}

// Writes a piece of V steps of a row; `row` is the row's address.
template <WeightFormat kFormat>
struct PieceWriter {
  template <int V, class Row>
  __device__ static __forceinline__ void write(uint8_t* row, const Row& values, int first, int lane, int) {
    constexpr int kBytes = kFormat == WeightFormat::fp32 ? 4 : 2;
    Words<(V * kBytes + 3) / 4> words = {};
#pragma unroll
    for (int s = 0; s < V; ++s) {
      const uint32_t bits = values.template converted<kFormat>((first + s) * kLanes + lane);
      words.words[s * kBytes / 4] |= kBytes == 4 ? bits : bits << (s % 2 * 16);
    }
    store_bytes<V * kBytes>(row + value_place({first, V}, lane, 0) * kBytes, words);
  }
};

template <>
struct PieceWriter<WeightFormat::nf4> {
  template <int V, class Row>
  __device__ static __forceinline__ void write(uint8_t* row, const Row& values, int first, int lane, int steps) {
    Words<(V + 7) / 8> words = {};
#pragma unroll
    for (int s = 0; s < V; s += 2) {
      const int column = (first + s) * kLanes + lane;
      const float earlier = values.value(column);
      const float later = values.value(column + kLanes);
      const float scale = float_of_bits(greatest_of_warp(max(magnitude_bits(earlier), magnitude_bits(later))));
      if (lane == 0) *reinterpret_cast<float*>(row + (first + s) / 2 * 4) = scale;
      const uint32_t pair = nf4_code(earlier, scale) | nf4_code(later, scale) << 4;
      words.words[s / 8] |= pair << (s % 8 * 4);
    }
    store_bytes<(V + 1) / 2>(row + nf4_scale_bytes(steps) + first * (kLanes / 2) + lane_code_bytes(lane, V), words);
  }
};

// These two take only values that are shipped so: they put codes and scales in their places.
template <>
struct PieceWriter<WeightFormat::mxfp4> {
  template <int V, class Row>
  __device__ static __forceinline__ void write(uint8_t* row, const Row& values, int first, int lane, int steps) {
    Words<(V + 7) / 8> words = {};
#pragma unroll
    for (int s = 0; s < V; ++s) words.words[s / 8] |= values.code((first + s) * kLanes + lane) << (s % 8 * 4);
    store_bytes<(V + 1) / 2>(row + mxfp4_scale_bytes(steps) + first * (kLanes / 2) + lane_code_bytes(lane, V), words);
    if (lane < V) row[first + lane] = values.values.planes[1][first + lane];
  }
};

template <>
struct PieceWriter<WeightFormat::fp8> {
  template <int V, class Row>
  __device__ static __forceinline__ void write(uint8_t* row, const Row& values, int first, int lane, int steps) {
    Words<(V + 3) / 4> words = {};
#pragma unroll
    for (int s = 0; s < V; ++s) words.words[s / 4] |= values.code((first + s) * kLanes + lane) << (s % 4 * 8);
    store_bytes<V>(row + fp8_scale_bytes(steps) + value_place({first, V}, lane, 0), words);
    // A piece with fewer steps than share a scale may begin in the middle of such steps.
    if (first % kFp8ScaleSteps != 0 || lane >= (V + kFp8ScaleSteps - 1) / kFp8ScaleSteps) return;
    const int scale = first / kFp8ScaleSteps + lane;
    *reinterpret_cast<float*>(row + scale * 4) = values.values.scale(int64_t{scale} * kFp8Block) * kFp8ScaleFactor;
  }
};

template <int V, class Writer, class Row>
__device__ __forceinline__ void write_piece(uint8_t* row, const Row& values, const Piece& piece, int lane, int steps) {
  if (piece.steps == V) {
    Writer::template write<V>(row, values, piece.first, lane, steps);
  } else if constexpr (V > 1) {
    write_piece<V / 2, Writer>(row, values, piece, lane, steps);
  }
}

// For formats whose pieces do not depend on one another.
template <Split kSplit, WeightFormat kFormat>
__global__ void __launch_bounds__(kWriteThreads) write_pieces(const __grid_constant__ RowsToWrite rows) {
  constexpr int kMain = main_steps(kFormat);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int columns = static_cast<int>(rows.columns);
  const int steps = steps_of(rows.columns);
  const int pieces = piece_count(steps, kMain);
  // 32 bits, because a longer division would take longer than all the rest; 2^32 pieces are more than devices hold.
  const unsigned warp = blockIdx.x * kWriteWarps + threadIdx.x / kWarp;
  const int64_t row = warp / static_cast<unsigned>(pieces);
  if (row >= rows.row_count) return;
  const ShippedValues<kSplit> all{{rows.planes[0], rows.planes[1], rows.planes[2]}};
  const RowValues<kSplit> values{all.row(row, columns), columns};
  const Piece piece = piece_at(steps, kMain, static_cast<int>(warp % static_cast<unsigned>(pieces)));
  write_piece<kMain, PieceWriter<kFormat>>(rows.storage + row_offset(kFormat, rows.columns, rows.first_row + row), values, piece,
                                           lane, steps);
}

template <class Row>
struct Int8Writer {
  template <int V>
  __device__ static __forceinline__ void write(uint8_t* row, const Row& values, int first, int lane, float scale) {
    Words<(V + 3) / 4> words = {};
#pragma unroll
    for (int s = 0; s < V; ++s) {
      words.words[s / 4] |= int8_of(values.value((first + s) * kLanes + lane), scale) << (s % 4 * 8);
    }
    store_bytes<V>(row + value_place({first, V}, lane, 0), words);
  }
  template <int V>
  __device__ static void write_piece(uint8_t* row, const Row& values, const Piece& piece, int lane, float scale) {
    if (piece.steps == V) {
      write<V>(row, values, piece.first, lane, scale);
    } else if constexpr (V > 1) {
      write_piece<V / 2>(row, values, piece, lane, scale);
    }
  }
};

// A block of threads makes a row; it computes the scale first.
template <Split kSplit>
__global__ void __launch_bounds__(kWriteThreads) write_int8_rows(const __grid_constant__ RowsToWrite rows) {
  __shared__ uint32_t greatest_of_warps[kWriteWarps];
  using Row = RowValues<kSplit>;
  constexpr int kMain = main_steps(WeightFormat::int8);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int columns = static_cast<int>(rows.columns);
  const int64_t row = blockIdx.x;
  const ShippedValues<kSplit> all{{rows.planes[0], rows.planes[1], rows.planes[2]}};
  const Row values{all.row(row, columns), columns};
  uint32_t greatest = 0;
  for (int column = static_cast<int>(threadIdx.x); column < columns; column += kWriteThreads) {
    greatest = max(greatest, magnitude_bits(values.value(column)));
  }
  greatest = greatest_of_warp(greatest);
  if (lane == 0) greatest_of_warps[warp] = greatest;
  __syncthreads();
  greatest = 0;
  for (int i = 0; i < kWriteWarps; ++i) greatest = max(greatest, greatest_of_warps[i]);
  const float scale = int8_scale(greatest);
  const int64_t number = rows.first_row + row;
  float* const scales = reinterpret_cast<float*>(rows.storage + row_scales_offset(rows.rows, rows.columns));
  if (threadIdx.x == 0) scales[number] = scale;
  uint8_t* const to = rows.storage + row_offset(WeightFormat::int8, rows.columns, number);
  const int steps = steps_of(rows.columns);
  const int pieces = piece_count(steps, kMain);
  for (int piece = warp; piece < pieces; piece += kWriteWarps) {
    Int8Writer<Row>::template write_piece<kMain>(to, values, piece_at(steps, kMain, piece), lane, scale);
  }
}

template <class Kernel>
cudaError_t launch_blocks(Kernel* kernel, const RowsToWrite& rows, int64_t blocks, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kWriteThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, rows);
}

template <Split kSplit, WeightFormat kFormat>
cudaError_t launch_pieces(const RowsToWrite& rows, cudaStream_t stream) {
  const int64_t warps = rows.row_count * piece_count(steps_of(rows.columns), main_steps(kFormat));
  return launch_blocks(&write_pieces<kSplit, kFormat>, rows, (warps + kWriteWarps - 1) / kWriteWarps, stream);
}

template <Split kSplit>
cudaError_t launch_split(const RowsToWrite& rows, cudaStream_t stream) {
  switch (rows.format) {
    case WeightFormat::bf16: return launch_pieces<kSplit, WeightFormat::bf16>(rows, stream);
    case WeightFormat::fp16: return launch_pieces<kSplit, WeightFormat::fp16>(rows, stream);
    case WeightFormat::fp32: return launch_pieces<kSplit, WeightFormat::fp32>(rows, stream);
    case WeightFormat::int8: return launch_blocks(&write_int8_rows<kSplit>, rows, rows.row_count, stream);
    case WeightFormat::nf4: return launch_pieces<kSplit, WeightFormat::nf4>(rows, stream);
    case WeightFormat::mxfp4:
      if constexpr (kSplit == Split::mxfp4) return launch_pieces<kSplit, WeightFormat::mxfp4>(rows, stream);
      break;
    case WeightFormat::fp8:
      if constexpr (kSplit == Split::fp8) return launch_pieces<kSplit, WeightFormat::fp8>(rows, stream);
      break;
    default: break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t launch_write_rows(const RowsToWrite& rows, cudaStream_t stream) {
  if (rows.row_count <= 0 || rows.columns <= 0) return cudaSuccess;
  switch (rows.split) {
    case Split::none_bf16: return launch_split<Split::none_bf16>(rows, stream);
    case Split::none_fp16: return launch_split<Split::none_fp16>(rows, stream);
    case Split::none_fp32: return launch_split<Split::none_fp32>(rows, stream);
    case Split::bf16_e8_sm8: return launch_split<Split::bf16_e8_sm8>(rows, stream);
    case Split::fp16_hi8_lo8: return launch_split<Split::fp16_hi8_lo8>(rows, stream);
    case Split::fp32_e8_sm8_r16: return launch_split<Split::fp32_e8_sm8_r16>(rows, stream);
    case Split::fp16_e5_lo8_s1m2: return launch_split<Split::fp16_e5_lo8_s1m2>(rows, stream);
    case Split::mxfp4: return launch_split<Split::mxfp4>(rows, stream);
    case Split::fp8: return launch_split<Split::fp8>(rows, stream);
    case Split::sliced84:
    case Split::sliced63:
    case Split::sliced42: return launch_write_slices(rows, stream);
    default: return is_blocks(rows.split) ? launch_write_blocks(rows, stream) : cudaErrorInvalidValue;
  }
}

}  // namespace odmoe::cuda
