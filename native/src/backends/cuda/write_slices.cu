// Writes rows of slices into the layout of weight_layout.h. A warp makes a piece of a row of one slice: each lane gathers its own codes.
#include "kernels.h"
#include "weight_layout.h"

namespace odmoe::cuda {
namespace {

constexpr int kWriteWarps = 8;
constexpr int kMain = main_steps(WeightFormat::sliced84);

// A warp's piece, and the rows of a slice in both forms.
struct PieceToWrite {
  const uint8_t* shipped;  // the row
  uint8_t* slice;
  int64_t groups;  // of the matrix
  int64_t group;   // the row's first
  Piece piece;
};

// The lowest kWidth bits of the numbers of `steps` steps, from low bits on; lanes that share a byte give it to the first of them.
template <int kWidth>
__device__ __forceinline__ void store_codes(uint8_t* row, const uint32_t (&words)[kWidth], const Piece& piece, int lane) {
  const int bits = kWidth * piece.steps;
  const auto bit = static_cast<uint32_t>(piece.first * kLanes * kWidth + lane * bits);
  if (bits >= 8) {
    for (int i = 0; i < bits / 8; ++i) row[bit / 8 + static_cast<uint32_t>(i)] = static_cast<uint8_t>(words[i / 4] >> i % 4 * 8);
    return;
  }
  uint32_t byte = words[0] << bit % 8;
  for (int apart = 1; apart < 8 / bits; apart *= 2) byte |= __shfl_xor_sync(kFullWarp, byte, apart);
  if (bit % 8 == 0) row[bit / 8] = static_cast<uint8_t>(byte);
}

// The code of this lane's column in a group (odmoe/slices.h).
template <int kBits>
__device__ __forceinline__ uint32_t shipped_code(const uint8_t* group, int lane) {
  if constexpr (kBits == 4) return group[lane % 16] >> lane / 16 * 4 & 15;
  const uint32_t low = group[lane % 8] >> lane / 8 * 2 & 3;
  if constexpr (kBits == 2) return low;
  return low | (group[8 + lane / 8] >> lane % 8 & 1u) << 2;
}

template <int kBits>
__device__ __forceinline__ void write_codes(const PieceToWrite& to, int lane) {
  constexpr int kLowBits = kBits == 4 ? 4 : 2;
  constexpr int kGroupBytes = kBits * kLanes / 8;
  uint32_t low[kLowBits] = {};
  uint32_t high[1] = {};
#pragma unroll
  for (int step = 0; step < kMain; ++step) {
    if (step >= to.piece.steps) break;
    const uint32_t code = shipped_code<kBits>(to.shipped + (to.piece.first + step) * kGroupBytes, lane);
    low[step * kLowBits / 32] |= (code & ((1u << kLowBits) - 1)) << step * kLowBits % 32;
    if constexpr (kBits == 3) high[0] |= code >> 2 << step;
  }
  store_codes<kLowBits>(to.slice + to.group * (kLowBits * kLanes / 8), low, to.piece, lane);
  if constexpr (kBits == 3) {
    store_codes<1>(to.slice + slice_high_bits_offset(to.groups) + to.group * (kLanes / 8), high, to.piece, lane);
  }
}

// Behind a row's codes come its scales, and then its zeros.
template <int kBits>
__device__ __forceinline__ void write_scales(const PieceToWrite& to, int steps, int lane) {
  if (lane >= to.piece.steps) return;
  const int step = to.piece.first + lane;
  const uint8_t* const scales = to.shipped + steps * (kBits * kLanes / 8);
  uint8_t* const scale = to.slice + slice_scales_offset(kBits, to.groups) + (to.group + step) * 2;
  scale[0] = scales[2 * step];
  scale[1] = scales[2 * step + 1];
  to.slice[slice_zeros_offset(kBits, to.groups) + to.group + step] = scales[2 * steps + step];
}

template <int kBits>
__global__ void __launch_bounds__(kWriteWarps* kWarp) write_slices(const __grid_constant__ RowsToWrite rows) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int steps = steps_of(rows.columns);
  const auto pieces = static_cast<unsigned>(piece_count(steps, kMain));
  // 32 bits are enough: 2^32 pieces are more than devices hold.
  const unsigned warp = blockIdx.x * kWriteWarps + threadIdx.x / kWarp;
  const int64_t row = warp / pieces;
  if (row >= rows.row_count) return;
  const bool upper = blockIdx.y == 0 && rows.planes[0] != nullptr;
  const int64_t code_bytes_of_row = int64_t{steps} * (kBits * kLanes / 8);
  const int64_t shipped_bytes = code_bytes_of_row + (upper ? int64_t{steps} * kSliceScaleBytes : 0);
  const PieceToWrite to{rows.planes[upper ? 0 : 1] + row * shipped_bytes, upper ? rows.storage : rows.lower, rows.rows * steps,
                        (rows.first_row + row) * steps, piece_at(steps, kMain, static_cast<int>(warp % pieces))};
  write_codes<kBits>(to, lane);
  if (upper) write_scales<kBits>(to, steps, lane);
}

template <int kBits>
cudaError_t launch_slices(const RowsToWrite& rows, cudaStream_t stream) {
  const int slices = (rows.planes[0] != nullptr ? 1 : 0) + (rows.planes[1] != nullptr ? 1 : 0);
  if (slices == 0) return cudaSuccess;
  const int64_t warps = rows.row_count * piece_count(steps_of(rows.columns), kMain);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>((warps + kWriteWarps - 1) / kWriteWarps), static_cast<unsigned>(slices));
  config.blockDim = dim3(kWriteWarps * kWarp);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, &write_slices<kBits>, rows);
}

}  // namespace

cudaError_t launch_write_slices(const RowsToWrite& rows, cudaStream_t stream) {
  switch (rows.split) {
    case Split::sliced84: return launch_slices<4>(rows, stream);
    case Split::sliced63: return launch_slices<3>(rows, stream);
    case Split::sliced42: return launch_slices<2>(rows, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace odmoe::cuda
