// Residual streams: the weights of a part, its input, and the streams behind it.
#include "activations.h"
#include "elementwise_code.h"
#include "grid_launch.h"
#include "kernels.h"

namespace odmoe::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostMixed = kMostStreams * kMostStreams;
// Values of a mix that one lane holds.
constexpr int kLaneValues = (kMostMixed + kWarp - 1) / kWarp;

// The sum of `count` values that lie `step` apart.
__device__ float sum_of(const float* first, int count, int step) {
  float sum = 0.0f;
  for (int i = 0; i < count; ++i) sum = sum + first[i * step];
  return sum;
}

// Every value of the mix is divided by the sum of its row, or of its column, + epsilon. The warp's lanes share the values.
__device__ void balance(float* mix, int streams, bool of_rows, float epsilon) {
  const int lane = static_cast<int>(threadIdx.x);
  float balanced[kLaneValues];
#pragma unroll
  for (int i = 0; i < kLaneValues; ++i) {
    const int place = lane + i * kWarp;
    if (place >= streams * streams) continue;
    const float sum =
        of_rows ? sum_of(mix + place / streams * streams, streams, 1) : sum_of(mix + place % streams, streams, streams);
    balanced[i] = divided(mix[place], sum + epsilon);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kLaneValues; ++i) {
    const int place = lane + i * kWarp;
    if (place < streams * streams) mix[place] = balanced[i];
  }
  __syncwarp();
}

// Each row of the mix becomes its softmax, plus epsilon; one lane computes one row.
__device__ void soften(float* mix, int streams, float epsilon) {
  const int lane = static_cast<int>(threadIdx.x);
  if (lane < streams) {
    float* const row = mix + lane * streams;
    float highest = -INFINITY;
    for (int k = 0; k < streams; ++k) highest = row[k] > highest ? row[k] : highest;
    for (int k = 0; k < streams; ++k) row[k] = exponential(row[k] - highest);
    const float sum = sum_of(row, streams, 1);
    for (int k = 0; k < streams; ++k) row[k] = divided(row[k], sum) + epsilon;
  }
  __syncwarp();
}

// One warp a row.
__global__ void __launch_bounds__(kWarp) stream_weights_kernel(const StreamWeightsWork work, const int columns) {
  __shared__ float mix[kMostMixed];
  const int n = work.streams;
  float* const values = work.values + int64_t{blockIdx.x} * columns;
  for (int i = static_cast<int>(threadIdx.x); i < columns; i += kWarp) {
    const int kind = i < n ? 0 : i < 2 * n ? 1 : 2;
    const float scaled = fused(values[i], work.scales[kind], work.base[i]);
    if (kind == 0) values[i] = sigmoid_of(scaled) + work.epsilon;
    if (kind == 1) values[i] = work.mixes ? 2.0f * sigmoid_of(scaled) : work.magnitude * sigmoid_of(scaled) + work.epsilon;
    if (kind == 2) mix[i - 2 * n] = scaled;
  }
  if (work.ending || !work.mixes) return;
  __syncwarp();
  soften(mix, n, work.epsilon);
  balance(mix, n, false, work.epsilon);
  for (int round = 1; round < work.rounds; ++round) {
    balance(mix, n, true, work.epsilon);
    balance(mix, n, false, work.epsilon);
  }
  for (int i = static_cast<int>(threadIdx.x); i < n * n; i += kWarp) values[2 * n + i] = mix[i];
}

// Thread (x, y): kWidth columns of row y.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) sum_streams_kernel(const StreamSumWork work) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * kWidth;
  if (column >= work.size) return;
  const int64_t row = blockIdx.y;
  const float* const streams = work.streams + row * work.count * work.size + column;
  const float* const weights = work.weights + row * work.weight_stride;
  Pack<kWidth> sum = {};
  for (int i = 0; i < work.count; ++i) {
    const Pack<kWidth> stream = load_pack<kWidth>(streams + int64_t{i} * work.size);
    for (int j = 0; j < kWidth; ++j) sum.values[j] = weighted_sum(i, weights[i], stream.values[j], sum.values[j]);
  }
  store_pack(work.out + row * work.size + column, sum);
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads) mix_streams_kernel(const StreamMixWork work) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * kWidth;
  if (column >= work.size) return;
  const int64_t row = blockIdx.y;
  const int count = work.count;
  float* const streams = work.streams + row * count * work.size + column;
  const float* const behind = work.weights + row * (2 + count) * count + count;
  const float* const mix = behind + count;
  const Pack<kWidth> output = load_pack<kWidth>(work.output + row * work.size + column);
  Pack<kWidth> before[kMostStreams];
#pragma unroll
  for (int i = 0; i < kMostStreams; ++i) {
    if (i < count) before[i] = load_pack<kWidth>(streams + int64_t{i} * work.size);
  }
  for (int k = 0; k < count; ++k) {
    Pack<kWidth> sum;
    for (int j = 0; j < kWidth; ++j) sum.values[j] = behind[k] * output.values[j];
#pragma unroll
    for (int i = 0; i < kMostStreams; ++i) {
      if (i >= count) continue;
      const float weight = mix[i * count + k];
      for (int j = 0; j < kWidth; ++j) sum.values[j] = fused(weight, before[i].values[j], sum.values[j]);
    }
    store_pack(streams + int64_t{k} * work.size, sum);
  }
}

// The same for streams that are not mixed: each gets the output, times its own weight.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) add_to_streams_kernel(const StreamMixWork work) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * kWidth;
  if (column >= work.size) return;
  const int64_t row = blockIdx.y;
  float* const streams = work.streams + row * work.count * work.size + column;
  const float* const behind = work.weights + row * 2 * work.count + work.count;
  const Pack<kWidth> output = load_pack<kWidth>(work.output + row * work.size + column);
  for (int k = 0; k < work.count; ++k) {
    float* const stream = streams + int64_t{k} * work.size;
    Pack<kWidth> sum = load_pack<kWidth>(stream);
    for (int j = 0; j < kWidth; ++j) sum.values[j] = fused(behind[k], output.values[j], sum.values[j]);
    store_pack(stream, sum);
  }
}

dim3 row_grid(int64_t elements, int rows) { return dim3(blocks_for(elements, kThreads), static_cast<unsigned>(rows), 1); }

}  // namespace

cudaError_t launch_stream_weights(const StreamWeightsWork& work, cudaStream_t stream) {
  return launch_grid(dim3(static_cast<unsigned>(work.rows), 1, 1), kWarp, stream, stream_weights_kernel, work, work.columns());
}

cudaError_t launch_sum_streams(const StreamSumWork& work, cudaStream_t stream) {
  const bool wide = takes_quads(work.out, work.size) && takes_quads(work.streams, work.size);
  return launch_row_slices(work.rows, [&](int64_t first, int rows) {
    StreamSumWork slice = work;
    slice.out += first * work.size;
    slice.streams += first * work.count * work.size;
    slice.weights += first * work.weight_stride;
    return launch_grid(row_grid(wide ? work.size / 4 : work.size, rows), kThreads, stream,
                       wide ? sum_streams_kernel<4> : sum_streams_kernel<1>, slice);
  });
}

cudaError_t launch_mix_streams(const StreamMixWork& work, cudaStream_t stream) {
  const bool wide = takes_quads(work.streams, work.size) && takes_quads(work.output, work.size);
  return launch_row_slices(work.rows, [&](int64_t first, int rows) {
    StreamMixWork slice = work;
    slice.streams += first * work.count * work.size;
    slice.output += first * work.size;
    slice.weights += first * work.columns();
    const dim3 grid = row_grid(wide ? work.size / 4 : work.size, rows);
    if (!work.mixes) {
      return launch_grid(grid, kThreads, stream, wide ? add_to_streams_kernel<4> : add_to_streams_kernel<1>, slice);
    }
    return launch_grid(grid, kThreads, stream, wide ? mix_streams_kernel<4> : mix_streams_kernel<1>, slice);
  });
}

}  // namespace odmoe::cuda
