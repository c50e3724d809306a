// The router: scores of a row's experts, the choice of k of them, and their weights. A warp handles a row; a lane handles the
// experts with number mod 32 = lane.
#include "activations.h"
#include "grid_launch.h"
#include "kernels.h"
#include "warp_folds.h"

namespace odmoe::cuda {
namespace {

static_assert(kMostExperts <= 32 * kWarp, "a lane keeps a bit for each of its experts");

struct Choice {
  float value;
  int number;
};

// The greater value wins, the lower number among equals.
__device__ __forceinline__ Choice better(Choice a, Choice b) {
  return b.value > a.value || (b.value == a.value && b.number < a.number) ? b : a;
}

// Values to be taken by falling value, ties to the lower number; NaN counts as the lowest value. All lanes call all functions.
class Ranking {
 public:
  // A lane only reads values[i] with i mod 32 = lane.
  __device__ Ranking(const float* values, int count)
      : values_(values), count_(count), lane_(static_cast<int>(threadIdx.x)), left_(0xffffffffu) {}

  // Every lane gets the number of the value.
  __device__ int take() {
    Choice best = {-INFINITY, count_};
    for (int i = lane_; i < count_; i += kWarp) {
      if ((left_ >> (i / kWarp) & 1u) == 0) continue;
      const float value = values_[i];
      best = better(best, {value == value ? value : -INFINITY, i});
    }
    for (int apart = kWarp / 2; apart > 0; apart /= 2) {
      const Choice other = {__shfl_xor_sync(kFullWarp, best.value, apart), __shfl_xor_sync(kFullWarp, best.number, apart)};
      best = better(best, other);
    }
    if (best.number % kWarp == lane_) left_ &= ~(1u << (best.number / kWarp));
    return best.number;
  }

  __device__ void exclude_all() { left_ = 0; }
  __device__ void include(int begin, int end) {
    for (int i = begin + (lane_ - begin % kWarp + kWarp) % kWarp; i < end; i += kWarp) left_ |= 1u << (i / kWarp);
  }

 private:
  const float* const values_;
  const int count_;
  const int lane_;
  uint32_t left_;  // bit i: value lane + 32 i may be taken
};

__device__ float greatest_logit(const float* logits, int count, int left_out) {
  float greatest = -INFINITY;
  for (int e = static_cast<int>(threadIdx.x); e < count; e += kWarp) {
    if (e != left_out) greatest = greater(logits[e], greatest);
  }
  return greatest_of_lanes<kWarp>(greatest);
}

__device__ void write_softmax(float* scores, const float* logits, int count) {
  const int lane = static_cast<int>(threadIdx.x);
  const float greatest = greatest_logit(logits, count, -1);
  float partial = 0.0f;
  for (int e = lane; e < count; e += kWarp) {
    const float term = exponential(logits[e] - greatest);
    scores[e] = term;
    partial = partial + term;
  }
  const float sum = fold_lanes(partial);
  for (int e = lane; e < count; e += kWarp) scores[e] = divided(scores[e], sum);
}

// The score of a group of `size` experts.
__device__ float group_score(const float* choice, int size, GroupScore kind) {
  float best = -INFINITY;
  float second = -INFINITY;
  for (int e = 0; e < size; ++e) {
    const float value = choice[e];
    second = value > best ? best : value > second ? value : second;
    best = value > best ? value : best;
  }
  return kind == GroupScore::best_two && size > 1 ? best + second : best;
}

// Leaves only the experts of the best groups in the ranking. group_scores: room for one float per group.
__device__ void keep_best_groups(Ranking& experts, const RouterJob& job, const float* choice, float* group_scores) {
  const int size = job.expert_count / job.shape.groups;
  // Lanes read values that other lanes have written.
  __syncwarp();
  for (int g = static_cast<int>(threadIdx.x); g < job.shape.groups; g += kWarp) {
    group_scores[g] = group_score(choice + g * size, size, job.shape.group_score);
  }
  Ranking groups(group_scores, job.shape.groups);
  experts.exclude_all();
  for (int kept = 0; kept < job.shape.groups_kept; ++kept) {
    const int group = groups.take();
    experts.include(group * size, (group + 1) * size);
  }
}

// The softmax weight of the highest logit among the logits that are near enough to it.
__device__ float sparsemixer_weight(const float* logits, int count, int left_out, float jitter) {
  const float most = greatest_logit(logits, count, left_out);
  float partial = 0.0f;
  for (int e = static_cast<int>(threadIdx.x); e < count; e += kWarp) {
    const float logit = logits[e];
    const float magnitude = float_of_bits(bits_of_float(logit) & 0x7fffffffu);
    const bool far = divided(most - logit, greater(magnitude, most)) > 2.0f * jitter;
    if (e != left_out && !far) partial = partial + exponential(logit - most);
  }
  return divided(1.0f, fold_lanes(partial));
}

struct Chosen {
  int experts[kMostExperts];
  float scores[kMostExperts];
};

__device__ void choose_mixed(const RouterJob& job, const float* logits, Chosen& chosen) {
  Ranking ranking(logits, job.expert_count);
  int left_out = -1;
  for (int rank = 0; rank < job.k; ++rank) {
    const int expert = ranking.take();
    const float weight = sparsemixer_weight(logits, job.expert_count, left_out, job.shape.jitter);
    if (threadIdx.x == 0) {
      chosen.experts[rank] = expert;
      chosen.scores[rank] = weight;
    }
    left_out = expert;
  }
}

// wanted_scores: room for the scores of all experts of the row, or null.
__device__ void choose_scored(const RouterJob& job, const float* logits, Chosen& chosen, float* wanted_scores) {
  __shared__ float scores[kMostExperts];
  __shared__ float choice[kMostExperts];
  __shared__ float group_scores[kMostExperts];
  const int lane = static_cast<int>(threadIdx.x);
  if (job.shape.score == RouterScore::softmax) {
    write_softmax(scores, logits, job.expert_count);
  } else {
    const bool is_sigmoid = job.shape.score == RouterScore::sigmoid;
    for (int e = lane; e < job.expert_count; e += kWarp) {
      scores[e] = is_sigmoid ? sigmoid_of(logits[e]) : square_root(softplus_of(logits[e]));
    }
  }
  for (int e = lane; e < job.expert_count; e += kWarp) {
    if (wanted_scores != nullptr) wanted_scores[e] = scores[e];
    choice[e] = job.choice_bias != nullptr ? scores[e] + job.choice_bias[e] : scores[e];
  }
  if (job.given != nullptr) {
    // Lanes read scores that other lanes have written.
    __syncwarp();
    for (int rank = lane; rank < job.k; rank += kWarp) {
      chosen.experts[rank] = job.given[int64_t{blockIdx.x} * job.k + rank];
      chosen.scores[rank] = scores[chosen.experts[rank]];
    }
    return;
  }
  Ranking ranking(choice, job.expert_count);
  if (job.shape.groups_kept < job.shape.groups) keep_best_groups(ranking, job, choice, group_scores);
  for (int rank = 0; rank < job.k; ++rank) {
    const int expert = ranking.take();
    if (expert % kWarp != lane) continue;
    chosen.experts[rank] = expert;
    chosen.scores[rank] = scores[expert];
  }
}

__global__ void __launch_bounds__(kWarp) router_kernel(const RouterJob job) {
  __shared__ Chosen chosen;
  const int64_t row = blockIdx.x;
  const float* const logits = job.logits + row * job.expert_count;
  if (job.shape.score == RouterScore::sparsemixer) {
    choose_mixed(job, logits, chosen);
  } else {
    choose_scored(job, logits, chosen, job.scores == nullptr ? nullptr : job.scores + row * job.expert_count);
  }
  __syncwarp();
  float divisor = 1.0f;
  if (job.shape.normalize) {
    float total = chosen.scores[0];
    for (int rank = 1; rank < job.k; ++rank) total = total + chosen.scores[rank];
    total = total + job.shape.sum_epsilon;
    divisor = total < job.shape.sum_floor ? job.shape.sum_floor : total;
  }
  for (int rank = static_cast<int>(threadIdx.x); rank < job.k; rank += kWarp) {
    const int expert = chosen.experts[rank];
    float weight = divided(chosen.scores[rank], divisor) * job.shape.scale;
    if (job.expert_scale != nullptr) weight = weight * job.expert_scale[expert];
    job.experts[row * job.k + rank] = expert;
    job.weights[row * job.k + rank] = weight;
  }
}

}  // namespace

cudaError_t launch_router(const RouterJob& job, cudaStream_t stream) {
  return launch_grid(dim3(static_cast<unsigned>(job.n), 1, 1), kWarp, stream, router_kernel, job);
}

}  // namespace odmoe::cuda
