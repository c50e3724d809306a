// Activations, copies and sums over whole arrays: operators on single elements, which memory bounds.
#include "activations.h"
#include "elementwise_code.h"
#include "grid_launch.h"
#include "kernels.h"

namespace odmoe::cuda {
namespace {

constexpr int kThreads = 256;

// Thread (x, y): kWidth columns of row y.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    glu_kernel(float* out, const float* gate_up, const float* biases, int size, const GluShape shape) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * kWidth;
  if (column >= size) return;
  const int64_t row = blockIdx.y;
  Pack<kWidth> gate = load_pack<kWidth>(gate_up + row * 2 * size + column);
  Pack<kWidth> up = load_pack<kWidth>(gate_up + (row * 2 + 1) * size + column);
  if (biases != nullptr) {
    const Pack<kWidth> gate_biases = load_pack<kWidth>(biases + column);
    const Pack<kWidth> up_biases = load_pack<kWidth>(biases + size + column);
    for (int j = 0; j < kWidth; ++j) gate.values[j] = gate.values[j] + gate_biases.values[j];
    for (int j = 0; j < kWidth; ++j) up.values[j] = up.values[j] + up_biases.values[j];
  }
  for (int j = 0; j < kWidth; ++j) gate.values[j] = glu_of(gate.values[j], up.values[j], shape);
  store_pack(out + row * size + column, gate);
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads) relu_squared_kernel(float* out, const float* in, int64_t count) {
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kWidth;
  if (i >= count) return;
  Pack<kWidth> x = load_pack<kWidth>(in + i);
  for (int j = 0; j < kWidth; ++j) {
    const float positive = x.values[j] < 0.0f ? 0.0f : x.values[j];
    x.values[j] = positive * positive;
  }
  store_pack(out + i, x);
}

struct Addition {
  const float* y;
  float scale;
  template <int kWidth>
  __device__ void operator()(Pack<kWidth>& x, int64_t i) const {
    const Pack<kWidth> more = load_pack<kWidth>(y + i);
    for (int j = 0; j < kWidth; ++j) x.values[j] = x.values[j] + more.values[j] * scale;
  }
};

struct Scaling {
  float factor;
  template <int kWidth>
  __device__ void operator()(Pack<kWidth>& x, int64_t) const {
    for (int j = 0; j < kWidth; ++j) x.values[j] = x.values[j] * factor;
  }
};

struct Capping {
  float divisor;
  float cap;
  template <int kWidth>
  __device__ void operator()(Pack<kWidth>& x, int64_t) const {
    for (int j = 0; j < kWidth; ++j) x.values[j] = capped(x.values[j], divisor, cap);
  }
};

template <int kWidth, class Act>
__global__ void __launch_bounds__(kThreads) array_kernel(float* x, int64_t count, const Act act) {
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kWidth;
  if (i + kWidth <= count) {
    Pack<kWidth> pack = load_pack<kWidth>(x + i);
    act(pack, i);
    store_pack(x + i, pack);
  } else {
    for (int64_t j = i; j < count; ++j) {
      Pack<1> one = load_pack<1>(x + j);
      act(one, j);
      store_pack(x + j, one);
    }
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
__global__ void __launch_bounds__(kThreads) combine_kernel(const CombineJob job) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * kWidth;
  if (column >= job.size) return;
  const int64_t row = blockIdx.y;
  Pack<kWidth> sum = {};
#pragma unroll 4
  for (int rank = 0; rank < job.k; ++rank) {
    const float weight = job.weights[row * job.k + rank];
    const Pack<kWidth> output = load_pack<kWidth>(job.outputs + (row * job.k + rank) * job.size + column);
    for (int j = 0; j < kWidth; ++j) sum.values[j] = weighted_sum(rank, weight, output.values[j], sum.values[j]);
  }
  if (job.always != nullptr) {
    const float weight = job.always_gates != nullptr ? sigmoid_of(job.always_gates[row]) : 1.0f;
    const Pack<kWidth> output = load_pack<kWidth>(job.always + row * job.size + column);
    for (int j = 0; j < kWidth; ++j) sum.values[j] = weighted_sum(job.k, weight, output.values[j], sum.values[j]);
  }
  float* const hidden = job.hidden + row * job.size + column;
  if (job.add) {
    Pack<kWidth> total = load_pack<kWidth>(hidden);
    for (int j = 0; j < kWidth; ++j) sum.values[j] = total.values[j] + sum.values[j] * job.scale;
  }
  store_pack(hidden, sum);
}

dim3 row_grid(int64_t elements, int rows) { return dim3(blocks_for(elements, kThreads), static_cast<unsigned>(rows), 1); }

template <class Act>
cudaError_t launch_array(float* x, int64_t count, bool wide, const Act& act, cudaStream_t stream) {
  if (count <= 0) return cudaSuccess;
  return launch_grid(dim3(blocks_for(count, kThreads * (wide ? 4 : 1)), 1, 1), kThreads, stream,
                     wide ? array_kernel<4, Act> : array_kernel<1, Act>, x, count, act);
}

}  // namespace

cudaError_t launch_glu(float* out, const float* gate_up, const float* biases, int n, int size, const GluShape& shape,
                       cudaStream_t stream) {
  if (!shape.has_gate()) {
    const int64_t count = int64_t{2} * n * size;
    const bool quads = takes_quads(out, count) && takes_quads(gate_up, count);
    return launch_grid(dim3(blocks_for(count, kThreads * (quads ? 4 : 1)), 1, 1), kThreads, stream,
                       quads ? relu_squared_kernel<4> : relu_squared_kernel<1>, out, gate_up, count);
  }
  const bool wide = takes_quads(out, size) && takes_quads(gate_up, size) && takes_quads(biases, 0);
  return launch_row_slices(n, [=](int64_t first, int rows) {
    return launch_grid(row_grid(wide ? size / 4 : size, rows), kThreads, stream, wide ? glu_kernel<4> : glu_kernel<1>,
                       out + first * size, gate_up + first * 2 * size, biases, size, shape);
  });
}

cudaError_t launch_add(float* x, const float* y, int64_t count, float scale, cudaStream_t stream) {
  return launch_array(x, count, takes_quads(x, 0) && takes_quads(y, 0), Addition{y, scale}, stream);
}

cudaError_t launch_scale(float* x, int64_t count, float factor, cudaStream_t stream) {
  return launch_array(x, count, takes_quads(x, 0), Scaling{factor}, stream);
}

cudaError_t launch_cap(float* x, int64_t count, float divisor, float cap, cudaStream_t stream) {
  return launch_array(x, count, takes_quads(x, 0), Capping{divisor, cap}, stream);
}

cudaError_t launch_copy_rows(float* out, const int32_t* out_rows, const float* in, const int32_t* in_rows, int n, int size,
                             cudaStream_t stream) {
  const bool wide = takes_quads(out, size) && takes_quads(in, size);
  return launch_row_slices(n, [=](int64_t first, int rows) {
    // Without a list, the rows of a slice begin at the slice's first row.
    return launch_grid(row_grid(wide ? size / 4 : size, rows), kThreads, stream, wide ? copy_rows_kernel<4> : copy_rows_kernel<1>,
                       out_rows != nullptr ? out : out + first * size, out_rows != nullptr ? out_rows + first : nullptr,
                       in_rows != nullptr ? in : in + first * size, in_rows != nullptr ? in_rows + first : nullptr, size);
  });
}

cudaError_t launch_combine(const CombineJob& job, cudaStream_t stream) {
  const bool wide = takes_quads(job.hidden, job.size) && takes_quads(job.outputs, job.size) && takes_quads(job.always, job.size);
  return launch_row_slices(job.n, [&](int64_t first, int rows) {
    CombineJob slice = job;
    slice.hidden += first * job.size;
    if (job.k > 0) slice.outputs += first * job.k * job.size;
    if (job.k > 0) slice.weights += first * job.k;
    if (job.always != nullptr) slice.always += first * job.size;
    if (job.always_gates != nullptr) slice.always_gates += first;
    return launch_grid(row_grid(wide ? job.size / 4 : job.size, rows), kThreads, stream,
                       wide ? combine_kernel<4> : combine_kernel<1>, slice);
  });
}

}  // namespace odmoe::cuda
