// Norms, rotary embedding, SwiGLU and sums: what takes an element at a time, and is bound by memory.
#include "elementwise_code.h"
#include "grid_launch.h"
#include "kernels.h"
#include "warp_folds.h"

namespace odmoe::cuda {
namespace {

constexpr int kThreads = 256;
// A row is brought into shared memory in pieces of so many floats: one warp adds up its squares, in the order of the
// lanes' sums, while all threads wait, so it must not wait for memory too.
constexpr int kNormThreads = 512;
constexpr int kNormPiece = 8192;

// The warp's lanes add the squares of shared[0..count) to their sums. Past the end zeros are added, as the padded dot
// product does.
__device__ float add_squares(const float* shared, int count, float partial) {
  const int lane = static_cast<int>(threadIdx.x);
  int i = lane;
#pragma unroll 8
  for (; i - lane + kWarp <= count; i += kWarp) partial = fused(shared[i], shared[i], partial);
  if (i - lane < count) {
    const float x = i < count ? shared[i] : 0.0f;
    partial = fused(x, x, partial);
  }
  return partial;
}

template <int kWidth>
__global__ void __launch_bounds__(kNormThreads)
    rms_norm_kernel(float* out, const float* in, const float* weight, int size, float epsilon) {
  __shared__ __align__(16) float piece[kNormPiece];
  __shared__ float shared_root;
  const int64_t start = int64_t{blockIdx.x} * size;
  const int step = static_cast<int>(blockDim.x) * kWidth;
  const int first = static_cast<int>(threadIdx.x) * kWidth;
  float partial = 0.0f;
  for (int begin = 0; begin < size; begin += kNormPiece) {
    const int count = size - begin < kNormPiece ? size - begin : kNormPiece;
    if (begin != 0) __syncthreads();
    for (int i = first; i < count; i += step) store_pack(piece + i, load_pack<kWidth>(in + start + begin + i));
    __syncthreads();
    if (threadIdx.x < kWarp) partial = add_squares(piece, count, partial);
  }
  if (threadIdx.x < kWarp) {
    const float squares = fold_lanes(partial);
    if (threadIdx.x == 0) shared_root = rms_root(squares, size, epsilon);
  }
  __syncthreads();
  const float root = shared_root;
  // A row of one piece still lies in shared memory.
  const float* const row = size <= kNormPiece ? piece : in + start;
  for (int i = first; i < size; i += step) {
    Pack<kWidth> pack = load_pack<kWidth>(row + i);
    const Pack<kWidth> weights = load_pack<kWidth>(weight + i);
    for (int j = 0; j < kWidth; ++j) pack.values[j] = normalized(pack.values[j], root, weights.values[j]);
    store_pack(out + start + i, pack);
  }
}

// Thread (x, y): kWidth pairs of row y.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(float* heads, int64_t stride, const float* cos, const float* sin, int head_count, int half) {
  const int packs = half / kWidth;
  const int place = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (place >= head_count * packs) return;
  const int head = place / packs;
  const int pair = place % packs * kWidth;
  const int64_t row = blockIdx.y;
  float* const low = heads + row * stride + int64_t{head} * 2 * half + pair;
  Pack<kWidth> a = load_pack<kWidth>(low);
  Pack<kWidth> b = load_pack<kWidth>(low + half);
  const Pack<kWidth> c = load_pack<kWidth>(cos + row * half + pair);
  const Pack<kWidth> s = load_pack<kWidth>(sin + row * half + pair);
  for (int j = 0; j < kWidth; ++j) rotate_pair(a.values[j], b.values[j], c.values[j], s.values[j]);
  store_pack(low, a);
  store_pack(low + half, b);
}

// Thread (x, y): kWidth columns of row y.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) swiglu_kernel(float* out, const float* gate_up, int size) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * kWidth;
  if (column >= size) return;
  const int64_t row = blockIdx.y;
  Pack<kWidth> gate = load_pack<kWidth>(gate_up + row * 2 * size + column);
  const Pack<kWidth> up = load_pack<kWidth>(gate_up + (row * 2 + 1) * size + column);
  for (int j = 0; j < kWidth; ++j) gate.values[j] = swiglu_of(gate.values[j], up.values[j]);
  store_pack(out + row * size + column, gate);
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads) add_kernel(float* x, const float* y, int64_t count) {
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kWidth;
  if (i + kWidth <= count) {
    Pack<kWidth> sum = load_pack<kWidth>(x + i);
    const Pack<kWidth> more = load_pack<kWidth>(y + i);
    for (int j = 0; j < kWidth; ++j) sum.values[j] = sum.values[j] + more.values[j];
    store_pack(x + i, sum);
  } else {
    for (int64_t j = i; j < count; ++j) x[j] = x[j] + y[j];
  }
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    copy_rows_kernel(float* out, const int32_t* out_rows, const float* in, const int32_t* in_rows, int size) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * kWidth;
  if (column >= size) return;
  const int64_t to = out_rows != nullptr ? out_rows[blockIdx.y] : static_cast<int32_t>(blockIdx.y);
  const int64_t from = in_rows != nullptr ? in_rows[blockIdx.y] : static_cast<int32_t>(blockIdx.y);
  store_pack(out + to * size + column, load_pack<kWidth>(in + from * size + column));
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(float* hidden, const float* outputs, const float* weights, int k, int size) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * kWidth;
  if (column >= size) return;
  const int64_t row = blockIdx.y;
  Pack<kWidth> sum = {};
#pragma unroll 4
  for (int rank = 0; rank < k; ++rank) {
    const float weight = weights[row * k + rank];
    const Pack<kWidth> output = load_pack<kWidth>(outputs + (row * k + rank) * size + column);
    for (int j = 0; j < kWidth; ++j) sum.values[j] = weighted_sum(rank, weight, output.values[j], sum.values[j]);
  }
  Pack<kWidth> total = load_pack<kWidth>(hidden + row * size + column);
  for (int j = 0; j < kWidth; ++j) total.values[j] = total.values[j] + sum.values[j];
  store_pack(hidden + row * size + column, total);
}

dim3 row_grid(int64_t elements, int rows) { return dim3(blocks_for(elements, kThreads), static_cast<unsigned>(rows), 1); }

}  // namespace

cudaError_t launch_rms_norm(float* out, const float* in, const float* weight, int n, int size, float epsilon, cudaStream_t stream) {
  const bool wide = takes_quads(out, size) && takes_quads(in, size) && takes_quads(weight, size);
  const int packs = wide ? size / 4 : size;
  const int warps = packs < kNormThreads ? (packs + kWarp - 1) / kWarp : kNormThreads / kWarp;
  return launch_grid(dim3(static_cast<unsigned>(n), 1, 1), static_cast<unsigned>(warps * kWarp), stream,
                     wide ? rms_norm_kernel<4> : rms_norm_kernel<1>, out, in, weight, size, epsilon);
}

cudaError_t launch_rope(float* heads, int64_t stride, const float* cos, const float* sin, int n, int head_count, int head_dim,
                        cudaStream_t stream) {
  const int half = head_dim / 2;
  const bool wide = takes_quads(heads, stride) && takes_quads(cos, half) && takes_quads(sin, half);
  const int packs = head_count * (wide ? half / 4 : half);
  if (packs == 0) return cudaSuccess;
  return launch_row_slices(n, [=](int64_t first, int rows) {
    return launch_grid(row_grid(packs, rows), kThreads, stream, wide ? rope_kernel<4> : rope_kernel<1>, heads + first * stride,
                       stride, cos + first * half, sin + first * half, head_count, half);
  });
}

cudaError_t launch_swiglu(float* out, const float* gate_up, int n, int size, cudaStream_t stream) {
  const bool wide = takes_quads(out, size) && takes_quads(gate_up, size);
  return launch_row_slices(n, [=](int64_t first, int rows) {
    return launch_grid(row_grid(wide ? size / 4 : size, rows), kThreads, stream, wide ? swiglu_kernel<4> : swiglu_kernel<1>,
                       out + first * size, gate_up + first * 2 * size, size);
  });
}

cudaError_t launch_add(float* x, const float* y, int64_t count, cudaStream_t stream) {
  if (count <= 0) return cudaSuccess;
  const bool wide = takes_quads(x, 0) && takes_quads(y, 0);
  return launch_grid(dim3(blocks_for(count, kThreads * (wide ? 4 : 1)), 1, 1), kThreads, stream,
                     wide ? add_kernel<4> : add_kernel<1>, x, y, count);
}

cudaError_t launch_copy_rows(float* out, const int32_t* out_rows, const float* in, const int32_t* in_rows, int n, int size,
                             cudaStream_t stream) {
  const bool wide = takes_quads(out, size) && takes_quads(in, size);
  return launch_row_slices(n, [=](int64_t first, int rows) {
    // Without a list, the rows of a slice stand where the slice begins.
    return launch_grid(row_grid(wide ? size / 4 : size, rows), kThreads, stream, wide ? copy_rows_kernel<4> : copy_rows_kernel<1>,
                       out_rows != nullptr ? out : out + first * size, out_rows != nullptr ? out_rows + first : nullptr,
                       in_rows != nullptr ? in : in + first * size, in_rows != nullptr ? in_rows + first : nullptr, size);
  });
}

cudaError_t launch_combine(float* hidden, const float* outputs, const float* weights, int n, int k, int size, cudaStream_t stream) {
  const bool wide = takes_quads(hidden, size) && takes_quads(outputs, size);
  return launch_row_slices(n, [=](int64_t first, int rows) {
    return launch_grid(row_grid(wide ? size / 4 : size, rows), kThreads, stream, wide ? combine_kernel<4> : combine_kernel<1>,
                       hidden + first * size, outputs + first * k * size, weights + first * k, k, size);
  });
}

}  // namespace odmoe::cuda
