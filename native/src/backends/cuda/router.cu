// The router: softmax over a row's logits and the k greatest weights. A warp takes a row.
#include "grid_launch.h"
#include "kernels.h"
#include "warp_folds.h"

namespace odmoe::cuda {
namespace {

// Chosen experts' weights are never negative; this marks one that is taken.
constexpr float kTaken = -1.0f;

struct Choice {
  float weight;
  int expert;
};

// The greater weight wins, the lower expert among equals.
__device__ __forceinline__ Choice better(Choice a, Choice b) {
  return b.weight > a.weight || (b.weight == a.weight && b.expert < a.expert) ? b : a;
}

// A softmax is NaN everywhere or nowhere: its sum is NaN as soon as one term is. Then all weights are equal, and
// experts are chosen from the lowest on.
__device__ __forceinline__ float comparable(float weight) { return weight == weight ? weight : 0.0f; }

__device__ void write_softmax(float* weights, const float* logits, int count) {
  const int lane = static_cast<int>(threadIdx.x);
  float greatest = -INFINITY;
  for (int e = lane; e < count; e += kWarp) greatest = greater(logits[e], greatest);
  greatest = greatest_of_lanes<kWarp>(greatest);
  float partial = 0.0f;
  for (int e = lane; e < count; e += kWarp) {
    const float term = exponential(logits[e] - greatest);
    weights[e] = term;
    partial = partial + term;
  }
  const float sum = fold_lanes(partial);
  for (int e = lane; e < count; e += kWarp) weights[e] = divided(weights[e], sum);
}

__global__ void __launch_bounds__(kWarp)
    router_kernel(int32_t* experts, float* weights, const float* logits, int expert_count, int k, bool normalize) {
  // A lane reads and writes its own experts only: e mod 32 = lane.
  __shared__ float softmax[kMostExperts];
  __shared__ float chosen[kMostExperts];
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  write_softmax(softmax, logits + row * expert_count, expert_count);
  for (int rank = 0; rank < k; ++rank) {
    Choice best = {kTaken, expert_count};
    for (int e = lane; e < expert_count; e += kWarp) best = better(best, {comparable(softmax[e]), e});
    for (int apart = kWarp / 2; apart > 0; apart /= 2) {
      const Choice other = {__shfl_xor_sync(kFullWarp, best.weight, apart), __shfl_xor_sync(kFullWarp, best.expert, apart)};
      best = better(best, other);
    }
    if (best.expert % kWarp == lane) {
      chosen[rank] = softmax[best.expert];
      experts[row * k + rank] = best.expert;
      softmax[best.expert] = kTaken;
    }
  }
  __syncwarp();
  float total = 1.0f;
  if (normalize) {
    total = chosen[0];
    for (int rank = 1; rank < k; ++rank) total = total + chosen[rank];
  }
  for (int rank = lane; rank < k; rank += kWarp) {
    weights[row * k + rank] = normalize ? divided(chosen[rank], total) : chosen[rank];
  }
}

}  // namespace

cudaError_t launch_router(int32_t* experts, float* weights, const float* logits, int n, int expert_count, int k, bool normalize,
                          cudaStream_t stream) {
  return launch_grid(dim3(static_cast<unsigned>(n), 1, 1), kWarp, stream, router_kernel, experts, weights, logits, expert_count, k,
                     normalize);
}

}  // namespace odmoe::cuda
