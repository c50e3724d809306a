// Operators with a state that goes from position to position: causal convolutions, the gated delta rule and the state space rule.
// Each work is a run of rows of one sequence.
#include "activations.h"
#include "elementwise_code.h"
#include "grid_launch.h"
#include "kernels.h"

namespace odmoe::cuda {
namespace {

constexpr int kThreads = 128;
// Least number of rows for which a thread computes a channel.
constexpr int kLeastRows = 16;

// A channel's input at a row: from the work's rows, or from the tail before them.
__device__ __forceinline__ float value_at(const ConvolutionWork& work, int row, int64_t channel) {
  return row >= 0 ? work.in[row * work.in_stride + channel] : work.tail[(row + work.taps - 1) * work.channels + channel];
}

// Block (x, y, z): some channels, some rows, work z. Only the block of the first rows reads and writes the tail.
__global__ void __launch_bounds__(kThreads) convolve_kernel(const ConvolutionWork* works, int block_rows) {
  const ConvolutionWork work = works[blockIdx.z];
  const int64_t channel = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (channel >= work.channels) return;
  const int begin = static_cast<int>(blockIdx.y) * block_rows;
  const int end = min(begin + block_rows, work.rows);
  for (int row = begin; row < end; ++row) {
    float sum = 0.0f;
#pragma unroll 4
    for (int tap = 0; tap < work.taps; ++tap) {
      sum = fused(work.weight[tap * work.channels + channel], value_at(work, row - work.taps + 1 + tap, channel), sum);
    }
    if (work.bias != nullptr) sum = sum + work.bias[channel];
    work.out[row * work.out_stride + channel] = work.silu ? silu_of(sum) : sum;
  }
  // A block has more rows than the tail, so that no other block reads the values overwritten here.
  if (begin != 0) return;
  for (int kept = 0; kept < work.taps - 1; ++kept) {
    work.tail[kept * work.channels + channel] = value_at(work, work.rows - work.taps + 1 + kept, channel);
  }
}

// Dimensions of keys and queries that may be in flight to registers. The state uses most registers, so barriers delay further
// loads.
constexpr int kReadAhead = 16;

__device__ __forceinline__ int key_head_of(const DeltaWork& work, int head) {
  return work.tiled_value_heads ? head % work.key_heads : head / (work.value_heads / work.key_heads);
}

// The gates of one row of a value head, the same for all its dimensions. `decay` is not used where each channel has its own.
struct DeltaRow {
  float beta;
  float decay;
};

template <bool kByChannel>
__device__ __forceinline__ DeltaRow delta_row(const DeltaWork& work, int row, int head) {
  const int64_t at = row * work.gate_stride + head;
  if (kByChannel) return {sigmoid_of(work.beta[at]), 0.0f};
  const float rate = (work.decay_is_rate ? work.decay_log[head] : exponential(work.decay_log[head])) *
                     softplus_of(work.decay[at] + work.decay_bias[head]);
  return {sigmoid_of(work.beta[at]), exponential(-rate)};
}

// Vectors of one row in shared memory: key, query, and the decay of each channel where there is one.
template <bool kByChannel>
constexpr int kSharedVectors = kByChannel ? 3 : 2;

// Applies one row to a column of the state; returns the row's output in this column.
template <int kKeyDim, bool kByChannel>
__device__ __forceinline__ float change_column(float (&state)[kKeyDim], const float (&shared)[kSharedVectors<kByChannel>][kKeyDim],
                                               const DeltaRow& gates, float value) {
  float recalled = 0.0f;
#pragma unroll
  for (int i = 0; i < kKeyDim; i += 4) {
    if (i % kReadAhead == 0) __syncwarp();
    const Pack<4> keys = load_pack<4>(&shared[0][i]);
    const Pack<4> decays = kByChannel ? load_pack<4>(&shared[kSharedVectors<kByChannel> - 1][i]) : Pack<4>{};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      state[i + j] = state[i + j] * (kByChannel ? decays.values[j] : gates.decay);
      recalled = fused(state[i + j], keys.values[j], recalled);
    }
  }
  const float change = (value - recalled) * gates.beta;
  float out = 0.0f;
#pragma unroll
  for (int i = 0; i < kKeyDim; i += 4) {
    if (i % kReadAhead == 0) __syncwarp();
    const Pack<4> keys = load_pack<4>(&shared[0][i]);
    const Pack<4> queries = load_pack<4>(&shared[1][i]);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      state[i + j] = fused(keys.values[j], change, state[i + j]);
      out = fused(state[i + j], queries.values[j], out);
    }
  }
  return out;
}

// A lane holds one value dimension, a column of the state, in registers. Keys and queries of a row come through shared memory;
// those of the next row are loaded while this row is computed.
template <int kKeyDim, bool kByChannel>
__device__ void run_delta(const DeltaWork& work, int head, int dimension, float (&shared)[kSharedVectors<kByChannel>][kKeyDim]) {
  constexpr int kEach = kKeyDim / kWarp;
  const int lane = static_cast<int>(threadIdx.x);
  const int key_head = key_head_of(work, head);
  const bool there = dimension < work.value_dim;
  float* const column = work.state + int64_t{head} * kKeyDim * work.value_dim + (there ? dimension : 0);
  const int64_t value_offset = int64_t{head} * work.value_dim + (there ? dimension : 0);
  float state[kKeyDim];
#pragma unroll
  for (int i = 0; i < kKeyDim; ++i) state[i] = column[int64_t{i} * work.value_dim];
  float next_keys[kEach];
  float next_queries[kEach];
  float next_decays[kByChannel ? kEach : 1];
  float next_value = 0.0f;
  const auto load_next = [&](int row) {
    const int64_t at = row * work.stride + int64_t{key_head} * kKeyDim + lane;
    const int64_t decay_at = row * work.gate_stride + int64_t{head} * kKeyDim + lane;
#pragma unroll
    for (int i = 0; i < kEach; ++i) next_keys[i] = work.keys[at + i * kWarp];
#pragma unroll
    for (int i = 0; i < kEach; ++i) next_queries[i] = work.queries[at + i * kWarp];
    if (kByChannel) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) next_decays[i] = work.decay[decay_at + i * kWarp];
    }
    next_value = work.values[row * work.stride + value_offset];
  };
  load_next(0);
  for (int row = 0; row < work.rows; ++row) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      shared[0][i * kWarp + lane] = next_keys[i];
      shared[1][i * kWarp + lane] = next_queries[i];
      if (kByChannel) shared[kSharedVectors<kByChannel> - 1][i * kWarp + lane] = next_decays[i];
    }
    const float value = next_value;
    __syncwarp();
    if (row + 1 < work.rows) load_next(row + 1);
    const float out = change_column<kKeyDim, kByChannel>(state, shared, delta_row<kByChannel>(work, row, head), value);
    if (there) work.out[row * work.out_stride + value_offset] = out;
  }
  if (!there) return;
#pragma unroll
  for (int i = 0; i < kKeyDim; ++i) column[int64_t{i} * work.value_dim] = state[i];
}

// For any number of key dimensions; the state stays in memory.
template <bool kByChannel>
__device__ void run_delta_in_memory(const DeltaWork& work, int head, int dimension) {
  if (dimension >= work.value_dim) return;
  const int key_head = key_head_of(work, head);
  float* const column = work.state + int64_t{head} * work.key_dim * work.value_dim + dimension;
  for (int row = 0; row < work.rows; ++row) {
    const float* const keys = work.keys + row * work.stride + int64_t{key_head} * work.key_dim;
    const float* const queries = work.queries + row * work.stride + int64_t{key_head} * work.key_dim;
    const DeltaRow gates = delta_row<kByChannel>(work, row, head);
    const float* const decays = work.decay + row * work.gate_stride + int64_t{head} * work.key_dim;
    const auto decay = [&](int i) { return kByChannel ? decays[i] : gates.decay; };
    float recalled = 0.0f;
#pragma unroll 4
    for (int i = 0; i < work.key_dim; ++i) {
      recalled = fused(column[int64_t{i} * work.value_dim] * decay(i), keys[i], recalled);
    }
    const int64_t at = int64_t{head} * work.value_dim + dimension;
    const float change = (work.values[row * work.stride + at] - recalled) * gates.beta;
    float out = 0.0f;
#pragma unroll 4
    for (int i = 0; i < work.key_dim; ++i) {
      float& state = column[int64_t{i} * work.value_dim];
      state = fused(keys[i], change, state * decay(i));
      out = fused(state, queries[i], out);
    }
    work.out[row * work.out_stride + at] = out;
  }
}

// Block (x, y, z): 32 value dimensions, value head y, work z. A block is one warp: there are few warps, and each runs for long.
template <int kKeyDim, bool kByChannel>
__global__ void __launch_bounds__(kWarp) delta_kernel(const DeltaWork* works) {
  const DeltaWork work = works[blockIdx.z];
  const auto head = static_cast<int>(blockIdx.y);
  const int dimension = static_cast<int>(blockIdx.x * kWarp + threadIdx.x);
  if (head >= work.value_heads || work.rows <= 0) return;
  if constexpr (kKeyDim > 0) {
    __shared__ __align__(16) float shared[kSharedVectors<kByChannel>][kKeyDim];
    run_delta<kKeyDim, kByChannel>(work, head, dimension, shared);
  } else {
    run_delta_in_memory<kByChannel>(work, head, dimension);
  }
}

template <bool kByChannel>
auto delta_kernel_for(int key_dim) -> void (*)(const DeltaWork*) {
  if (key_dim == 128) return delta_kernel<128, kByChannel>;
  return key_dim == 64 ? delta_kernel<64, kByChannel> : delta_kernel<0, kByChannel>;
}

__global__ void __launch_bounds__(kThreads) decay_kernel(DecayWork work) {
  const Vectors& all = work.decays;
  const int64_t row_values = int64_t{all.vectors} * all.size;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= all.rows * row_values) return;
  const int64_t value = index % row_values;
  const int64_t head = value / all.size;
  float& decay = vector_at(all, index / row_values, head)[value % all.size];
  const float stored = work.decay_log[head];
  const float rate = work.decay_is_rate ? stored : exponential(stored);
  const float x = decay + work.decay_bias[value];
  decay = exponential(work.floor < 0.0f ? work.floor * sigmoid_of(rate * x) : -(rate * softplus_of(x)));
}

// The factors of one row of a head, the same for all its dimensions.
struct SpaceRow {
  float step;
  float decay;
};

__device__ __forceinline__ SpaceRow space_row(const StateSpaceWork& work, int row, int head) {
  const float step = softplus_of(work.steps[row * work.step_stride + head] + work.step_bias[head]);
  return {step, exponential(-(exponential(work.decay_log[head]) * step))};
}

// Applies one row to a column of the state; returns what is read from it. shared: the row's B and C.
template <int kSize>
__device__ __forceinline__ float change_space(float (&state)[kSize], const float (&shared)[2][kSize], float decay, float change) {
  float out = 0.0f;
#pragma unroll
  for (int i = 0; i < kSize; i += 4) {
    if (i % kReadAhead == 0) __syncwarp();
    const Pack<4> inputs = load_pack<4>(&shared[0][i]);
    const Pack<4> reads = load_pack<4>(&shared[1][i]);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      state[i + j] = fused(inputs.values[j], change, state[i + j] * decay);
      out = fused(state[i + j], reads.values[j], out);
    }
  }
  return out;
}

// As run_delta: a lane holds one dimension, a column of the state, in registers.
template <int kSize>
__device__ void run_space(const StateSpaceWork& work, int head, int dimension, float (&shared)[2][kSize]) {
  constexpr int kEach = kSize / kWarp;
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t group_offset = int64_t{head / (work.heads / work.groups)} * kSize;
  const bool there = dimension < work.head_dim;
  float* const column = work.state + int64_t{head} * kSize * work.head_dim + (there ? dimension : 0);
  const int64_t value_offset = int64_t{head} * work.head_dim + (there ? dimension : 0);
  float state[kSize];
#pragma unroll
  for (int i = 0; i < kSize; ++i) state[i] = column[int64_t{i} * work.head_dim];
  float next_inputs[kEach];
  float next_reads[kEach];
  float next_value = 0.0f;
  const auto load_next = [&](int row) {
    const int64_t at = row * work.stride + group_offset + lane;
#pragma unroll
    for (int i = 0; i < kEach; ++i) next_inputs[i] = work.inputs[at + i * kWarp];
#pragma unroll
    for (int i = 0; i < kEach; ++i) next_reads[i] = work.reads[at + i * kWarp];
    next_value = work.values[row * work.stride + value_offset];
  };
  load_next(0);
  for (int row = 0; row < work.rows; ++row) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      shared[0][i * kWarp + lane] = next_inputs[i];
      shared[1][i * kWarp + lane] = next_reads[i];
    }
    const float value = next_value;
    __syncwarp();
    if (row + 1 < work.rows) load_next(row + 1);
    const SpaceRow factors = space_row(work, row, head);
    const float out = change_space(state, shared, factors.decay, value * factors.step);
    if (there) work.out[row * work.out_stride + value_offset] = fused(work.skip[head], value, out);
  }
  if (!there) return;
#pragma unroll
  for (int i = 0; i < kSize; ++i) column[int64_t{i} * work.head_dim] = state[i];
}

// For any size of the state, which stays in memory.
__device__ void run_space_in_memory(const StateSpaceWork& work, int head, int dimension) {
  if (dimension >= work.head_dim) return;
  const int64_t group_offset = int64_t{head / (work.heads / work.groups)} * work.state_size;
  float* const column = work.state + int64_t{head} * work.state_size * work.head_dim + dimension;
  const int64_t at = int64_t{head} * work.head_dim + dimension;
  for (int row = 0; row < work.rows; ++row) {
    const float* const inputs = work.inputs + row * work.stride + group_offset;
    const float* const reads = work.reads + row * work.stride + group_offset;
    const SpaceRow factors = space_row(work, row, head);
    const float value = work.values[row * work.stride + at];
    const float change = value * factors.step;
    float out = 0.0f;
#pragma unroll 4
    for (int i = 0; i < work.state_size; ++i) {
      float& state = column[int64_t{i} * work.head_dim];
      state = fused(inputs[i], change, state * factors.decay);
      out = fused(state, reads[i], out);
    }
    work.out[row * work.out_stride + at] = fused(work.skip[head], value, out);
  }
}

// Block (x, y, z): 32 dimensions, head y, work z; one warp, as in delta_kernel.
template <int kSize>
__global__ void __launch_bounds__(kWarp) space_kernel(const StateSpaceWork* works) {
  const StateSpaceWork work = works[blockIdx.z];
  const auto head = static_cast<int>(blockIdx.y);
  const int dimension = static_cast<int>(blockIdx.x * kWarp + threadIdx.x);
  if (head >= work.heads || work.rows <= 0) return;
  if constexpr (kSize > 0) {
    __shared__ __align__(16) float shared[2][kSize];
    run_space<kSize>(work, head, dimension, shared);
  } else {
    run_space_in_memory(work, head, dimension);
  }
}

}  // namespace

cudaError_t launch_convolve(const ConvolutionWork* works, const ConvolutionExtent& extent, cudaStream_t stream) {
  const int block_rows = extent.taps > kLeastRows ? extent.taps : kLeastRows;
  const dim3 grid(blocks_for(extent.channels, kThreads), blocks_for(extent.rows, block_rows), static_cast<unsigned>(extent.works));
  return launch_grid(grid, kThreads, stream, convolve_kernel, works, block_rows);
}

cudaError_t launch_delta_rule(const DeltaWork* works, const DeltaExtent& extent, cudaStream_t stream) {
  const dim3 grid(blocks_for(extent.value_dim, kWarp), static_cast<unsigned>(extent.value_heads),
                  static_cast<unsigned>(extent.works));
  const auto kernel = extent.decay_by_channel ? delta_kernel_for<true>(extent.key_dim) : delta_kernel_for<false>(extent.key_dim);
  return launch_grid(grid, kWarp, stream, kernel, works);
}

cudaError_t launch_channel_decay(const DecayWork& work, cudaStream_t stream) {
  const Vectors& all = work.decays;
  return launch_grid(blocks_for(int64_t{all.rows} * all.vectors * all.size, kThreads), kThreads, stream, decay_kernel, work);
}

cudaError_t launch_state_space(const StateSpaceWork* works, const StateSpaceExtent& extent, cudaStream_t stream) {
  const dim3 grid(blocks_for(extent.head_dim, kWarp), static_cast<unsigned>(extent.heads), static_cast<unsigned>(extent.works));
  void (*const kernel)(const StateSpaceWork*) = extent.state_size == 128  ? space_kernel<128>
                                                : extent.state_size == 64 ? space_kernel<64>
                                                                          : space_kernel<0>;
  return launch_grid(grid, kWarp, stream, kernel, works);
}

}  // namespace odmoe::cuda
