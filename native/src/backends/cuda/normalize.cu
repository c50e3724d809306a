// RMS norms, divisions by the L2 norm, and layer norms.
#include "elementwise_code.h"
#include "grid_launch.h"
#include "kernels.h"
#include "warp_folds.h"

namespace odmoe::cuda {
namespace {

// A block of threads processes a long vector. It is copied to shared memory in pieces of kPiece floats: one warp adds it up, in the
// order of the lanes' sums, while all threads wait, so that this warp must not wait for memory, too.
constexpr int kBlockThreads = 512;
constexpr int kPiece = 8192;
// One warp processes each vector up to this size, such as heads.
constexpr int kMostWarpSize = 512;
constexpr int kWarps = 4;

struct Square {
  __device__ float operator()(float partial, float x) const { return fused(x, x, partial); }
};

struct Addend {
  __device__ float operator()(float partial, float x) const { return partial + x; }
};

struct SquareOfDifference {
  float mean;
  __device__ float operator()(float partial, float x) const { return fused(x - mean, x - mean, partial); }
};

// The warp's lanes add the terms of the values to their partial sums. The zeros behind the end that a dot product would add change
// nothing: no partial sum of these terms is -0.
template <class Term>
__device__ float add_terms(const float* values, int count, float partial, const Term& term) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 8
  for (int i = lane; i < count; i += kWarp) partial = term(partial, values[i]);
  return partial;
}

template <int kWidth>
class BlockRow {
 public:
  // The kernel owns the shared arrays.
  __device__ BlockRow(const float* in, int size, float* piece, float* folded)
      : in_(in), size_(size), piece_(piece), folded_(folded), held_(false) {}

  // Folds the terms of all values; every thread gets the result.
  template <class Term>
  __device__ float fold(const Term& term) {
    float partial = 0.0f;
    for (int begin = 0; begin < size_; begin += kPiece) {
      const int count = size_ - begin < kPiece ? size_ - begin : kPiece;
      if (!held_) load(begin, count);
      if (threadIdx.x < kWarp) partial = add_terms(piece_, count, partial, term);
      __syncthreads();
    }
    held_ = size_ <= kPiece;
    if (threadIdx.x < kWarp) {
      const float sum = fold_lanes(partial);
      if (threadIdx.x == 0) *folded_ = sum;
    }
    __syncthreads();
    return *folded_;
  }

  // A row of a single piece is still in shared memory.
  __device__ Pack<kWidth> values(int i) const { return load_pack<kWidth>((held_ ? piece_ : in_) + i); }

 private:
  __device__ void load(int begin, int count) {
    const int step = static_cast<int>(blockDim.x) * kWidth;
    for (int i = static_cast<int>(threadIdx.x) * kWidth; i < count; i += step) {
      store_pack(piece_ + i, load_pack<kWidth>(in_ + begin + i));
    }
    __syncthreads();
  }

  const float* const in_;
  const int size_;
  float* const piece_;
  float* const folded_;
  bool held_;
};

template <int kWidth>
__global__ void __launch_bounds__(kBlockThreads) normalize_by_blocks(const NormWork work) {
  __shared__ __align__(16) float piece[kPiece];
  __shared__ float folded;
  const int64_t row = blockIdx.x / static_cast<unsigned>(work.in.vectors);
  const int64_t number = blockIdx.x % static_cast<unsigned>(work.in.vectors);
  float* const out = vector_at(work.out, row, number);
  BlockRow<kWidth> values(vector_at(work.in, row, number), work.in.size, piece, &folded);
  const float root = norm_root(values.fold(Square{}), work.divisor, work.epsilon);
  for (int i = static_cast<int>(threadIdx.x) * kWidth; i < work.in.size; i += static_cast<int>(blockDim.x) * kWidth) {
    Pack<kWidth> pack = values.values(i);
    if (work.weight != nullptr) {
      const Pack<kWidth> weights = load_pack<kWidth>(work.weight + number * work.weight_stride + i);
      for (int j = 0; j < kWidth; ++j) pack.values[j] = divided(pack.values[j], root) * weights.values[j] * work.scale;
    } else {
      for (int j = 0; j < kWidth; ++j) pack.values[j] = divided(pack.values[j], root) * work.scale;
    }
    store_pack(out + i, pack);
  }
}

__global__ void __launch_bounds__(kWarps* kWarp) normalize_by_warps(const NormWork work) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t place = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (place >= int64_t{work.in.rows} * work.in.vectors) return;
  const int64_t row = place / work.in.vectors;
  const int64_t number = place - row * work.in.vectors;
  const float* const in = vector_at(work.in, row, number);
  float* const out = vector_at(work.out, row, number);
  const float squares = fold_lanes(add_terms(in, work.in.size, 0.0f, Square{}));
  const float root = norm_root(squares, work.divisor, work.epsilon);
#pragma unroll 4
  for (int i = lane; i < work.in.size; i += kWarp) {
    float x = divided(in[i], root);
    if (work.weight != nullptr) x = x * work.weight[number * work.weight_stride + i];
    out[i] = x * work.scale;
  }
}

template <int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    layer_norm_kernel(float* out, const float* in, const float* weight, const float* bias, int size, float epsilon) {
  __shared__ __align__(16) float piece[kPiece];
  __shared__ float folded;
  const int64_t start = int64_t{blockIdx.x} * size;
  const auto floats = static_cast<float>(size);
  BlockRow<kWidth> values(in + start, size, piece, &folded);
  const float mean = divided(values.fold(Addend{}), floats);
  const float root = norm_root(values.fold(SquareOfDifference{mean}), floats, epsilon);
  for (int i = static_cast<int>(threadIdx.x) * kWidth; i < size; i += static_cast<int>(blockDim.x) * kWidth) {
    Pack<kWidth> pack = values.values(i);
    const Pack<kWidth> weights = load_pack<kWidth>(weight + i);
    for (int j = 0; j < kWidth; ++j) pack.values[j] = divided(pack.values[j] - mean, root) * weights.values[j];
    if (bias != nullptr) {
      const Pack<kWidth> biases = load_pack<kWidth>(bias + i);
      for (int j = 0; j < kWidth; ++j) pack.values[j] = pack.values[j] + biases.values[j];
    }
    store_pack(out + start + i, pack);
  }
}

unsigned threads_for(int size, bool wide) {
  const int packs = wide ? size / 4 : size;
  return static_cast<unsigned>(packs < kBlockThreads ? (packs + kWarp - 1) / kWarp * kWarp : kBlockThreads);
}

}  // namespace

cudaError_t launch_normalize(const NormWork& work, cudaStream_t stream) {
  const int64_t vectors = int64_t{work.in.rows} * work.in.vectors;
  if (work.in.size <= kMostWarpSize) {
    return launch_grid(dim3(blocks_for(vectors, kWarps), 1, 1), kWarps * kWarp, stream, normalize_by_warps, work);
  }
  const bool wide = takes_quads(work.out) && takes_quads(work.in) && takes_quads(work.weight, work.weight_stride);
  return launch_grid(dim3(static_cast<unsigned>(vectors), 1, 1), threads_for(work.in.size, wide), stream,
                     wide ? normalize_by_blocks<4> : normalize_by_blocks<1>, work);
}

cudaError_t launch_layer_norm(float* out, const float* in, const float* weight, const float* bias, int n, int size, float epsilon,
                              cudaStream_t stream) {
  const bool wide = takes_quads(out, size) && takes_quads(in, size) && takes_quads(weight, 0) && takes_quads(bias, 0);
  return launch_grid(dim3(static_cast<unsigned>(n), 1, 1), threads_for(size, wide), stream,
                     wide ? layer_norm_kernel<4> : layer_norm_kernel<1>, out, in, weight, bias, size, epsilon);
}

}  // namespace odmoe::cuda
