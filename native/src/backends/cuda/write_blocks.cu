// Writes rows of block formats into the layout of block_layout.h. A warp makes a piece of a row's codes: each lane gathers its own. Other
// threads bring the scales.
#include "block_layout.h"
#include "grid_launch.h"
#include "kernels.h"
#include "shipped_blocks.h"

namespace odmoe::cuda {
namespace {

constexpr int kWriteWarps = 8;
constexpr int kWriteThreads = kWriteWarps * kWarp;

// A kernel's parameter.
struct BlocksToWrite {
  RowsToWrite rows;
  BlockForm form;
};

// The lowest `width` bits of the numbers of a piece's steps, from low bits on; lanes that share a byte give it to the first of them.
template <int kWidth, int kWords>
__device__ __forceinline__ void store_codes(uint8_t* row, const uint32_t (&words)[kWords], const Piece& piece, int lane) {
  const int bits = kWidth * piece.steps;
  const auto bit = static_cast<uint32_t>(piece.first * kLanes + lane * piece.steps) * kWidth;
  if (bits >= 32) {
    uint32_t* const to = reinterpret_cast<uint32_t*>(row + bit / 8);
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if (i < bits / 32) to[i] = words[i];
    }
    return;
  }
  if (bits >= 8) {
    for (int i = 0; i < bits / 8; ++i) row[bit / 8 + static_cast<uint32_t>(i)] = static_cast<uint8_t>(words[0] >> i * 8);
    return;
  }
  uint32_t byte = words[0] << bit % 8;
  for (int apart = 1; apart < 8 / bits; apart *= 2) byte |= __shfl_xor_sync(kFullWarp, byte, apart);
  if (bit % 8 == 0) row[bit / 8] = static_cast<uint8_t>(byte);
}

template <Split kSplit>
constexpr int kLowBits = kSplit == Split::q2_k || kSplit == Split::q3_k                      ? 2
                         : kHasNibbles<kSplit> || (kIsGguf<kSplit> && kSplit != Split::q8_0) ? 4
                                                                                             : 8;
template <Split kSplit>
constexpr int kHighBits = kSplit == Split::q6_k                                                                              ? 2
                          : kSplit == Split::q3_k || kSplit == Split::q5_0 || kSplit == Split::q5_1 || kSplit == Split::q5_k ? 1
                                                                                                                             : 0;

template <Split kSplit>
__global__ void __launch_bounds__(kWriteThreads) write_codes(const __grid_constant__ BlocksToWrite job) {
  constexpr int kLow = kLowBits<kSplit>;
  constexpr int kHigh = kHighBits<kSplit>;
  constexpr int kMain = block_main_steps(kLow);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int columns = static_cast<int>(job.rows.columns);
  const int steps = steps_of(columns);
  const auto pieces = static_cast<unsigned>(piece_count(steps, kMain));
  // 32 bits are enough: 2^32 pieces are more than devices hold.
  const unsigned warp = blockIdx.x * kWriteWarps + threadIdx.x / kWarp;
  const int64_t row = warp / pieces;
  if (row >= job.rows.row_count) return;
  const Piece piece = piece_at(steps, kMain, static_cast<int>(warp % pieces));
  const uint8_t* const codes = job.rows.planes[0] + row * shipped_code_row_bytes<kSplit>(columns);
  uint32_t low[kMain * kLow / 32] = {};
  uint32_t high[2] = {};
#pragma unroll
  for (int step = 0; step < kMain; ++step) {
    const int column = (piece.first + step) * kLanes + lane;
    if (step >= piece.steps || column >= columns) break;
    const uint32_t code = shipped_code<kSplit>(codes, column);
    low[step * kLow / 32] |= (code & ((1u << kLow) - 1)) << step * kLow % 32;
    if constexpr (kHigh != 0) high[step * kHigh / 32] |= code >> kLow << step * kHigh % 32;
  }
  const int64_t group = (job.rows.first_row + row) * steps;
  store_codes<kLow>(job.rows.storage + group * (kLow * kLanes / 8), low, piece, lane);
  if constexpr (kHigh != 0) {
    const int64_t high_at = block_places(job.form, job.rows.rows, steps).high;
    store_codes<kHigh>(job.rows.storage + high_at + group * (kHigh * kLanes / 8), high, piece, lane);
  }
}

// Writes the bytes of a row behind its codes: one thread for each byte, 0 where the file has nothing.
template <Split kSplit>
__global__ void __launch_bounds__(kWriteThreads) write_scales(const __grid_constant__ BlocksToWrite job) {
  const BlockForm& form = job.form;
  const int columns = static_cast<int>(job.rows.columns);
  const int steps = steps_of(columns);
  const BlockPlaces places = block_places(form, job.rows.rows, steps);
  const int scales = scale_row_bytes(form, steps);
  const int zeros = zero_row_bytes(form, steps);
  const int factors = form.row_factors ? 4 : 0;
  const int64_t bytes = scales + factors + zeros + form.order_bytes;
  const int64_t number = int64_t{blockIdx.x} * kWriteThreads + threadIdx.x;
  const int64_t row = number / bytes;
  if (row >= job.rows.row_count) return;
  const int64_t to_row = job.rows.first_row + row;
  int i = static_cast<int>(number % bytes);
  uint8_t* const storage = job.rows.storage;
  if constexpr (kIsGguf<kSplit>) {
    const uint8_t* const from = job.rows.planes[0] + row * shipped_code_row_bytes<kSplit>(columns);
    storage[places.scales + to_row * scales + i] = shipped_scale_byte<kSplit>(from, i, form.scale_bytes);
    return;
  }
  // nvfp4 may have one scale less than two for every step.
  const int shipped_scales = form.row_factors ? (columns + 15) / 16 : scales;
  const int64_t shipped_bytes = shipped_scales + factors + zeros + form.order_bytes;
  const uint8_t* from = job.rows.planes[1] + row * shipped_bytes;
  if (i < scales) {
    storage[places.scales + to_row / form.tile_rows * scales + i] = i < shipped_scales ? from[i] : uint8_t{0};
    return;
  }
  i -= scales;
  from += shipped_scales;
  if (i < factors) {
    storage[places.factors + to_row * 4 + i] = from[i];
  } else if (i < factors + zeros) {
    storage[places.zeros + to_row * zeros + i - factors] = from[i];
  } else {
    storage[places.order + to_row * form.order_bytes + i - factors - zeros] = from[i];
  }
}

template <Split kSplit>
cudaError_t launch_split(const BlocksToWrite& job, cudaStream_t stream) {
  const RowsToWrite& rows = job.rows;
  const int steps = steps_of(rows.columns);
  const int64_t warps = rows.row_count * piece_count(steps, block_main_steps(kLowBits<kSplit>));
  const cudaError_t error = launch_grid(dim3(blocks_for(warps, kWriteWarps)), kWriteThreads, stream, &write_codes<kSplit>, job);
  if (error != cudaSuccess) return error;
  const int64_t bytes =
      scale_row_bytes(job.form, steps) + (job.form.row_factors ? 4 : 0) + zero_row_bytes(job.form, steps) + job.form.order_bytes;
  return launch_grid(dim3(blocks_for(rows.row_count * bytes, kWriteThreads)), kWriteThreads, stream, &write_scales<kSplit>, job);
}

}  // namespace

cudaError_t launch_write_blocks(const RowsToWrite& rows, cudaStream_t stream) {
  if (rows.row_count <= 0 || rows.columns <= 0) return cudaSuccess;
  const BlocksToWrite job{rows, block_form(rows.format)};
  switch (kind_of(rows.split)) {
    case Split::fp8_row:
    case Split::fp8_tile:
    case Split::mxfp8: return launch_split<Split::fp8_row>(job, stream);
    case Split::nvfp4_multiplied:
    case Split::nvfp4_divided: return launch_split<Split::nvfp4_multiplied>(job, stream);
    case Split::q4_0:
    case Split::iq4_nl: return launch_split<Split::q4_0>(job, stream);
    case Split::q4_1: return launch_split<Split::q4_1>(job, stream);
    case Split::q5_0: return launch_split<Split::q5_0>(job, stream);
    case Split::q5_1: return launch_split<Split::q5_1>(job, stream);
    case Split::q8_0: return launch_split<Split::q8_0>(job, stream);
    case Split::q2_k: return launch_split<Split::q2_k>(job, stream);
    case Split::q3_k: return launch_split<Split::q3_k>(job, stream);
    case Split::q4_k: return launch_split<Split::q4_k>(job, stream);
    case Split::q5_k: return launch_split<Split::q5_k>(job, stream);
    case Split::q6_k: return launch_split<Split::q6_k>(job, stream);
    case Split::iq4_xs: return launch_split<Split::iq4_xs>(job, stream);
    case Split::grouped4: return launch_split<Split::grouped4>(job, stream);
    case Split::grouped8: return launch_split<Split::grouped8>(job, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace odmoe::cuda
