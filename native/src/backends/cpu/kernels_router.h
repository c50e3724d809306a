// The choice of each row's experts, and their weights.
#pragma once
#include "kernels_norms.h"

namespace odmoe::cpu {
namespace {

// NaN is never the greatest.
ODMOE_INLINE float greatest_of(const float* values, int64_t count) {
  Vector most = Simd::broadcast(-__builtin_inff());
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) most = Simd::greater(Simd::load(values + i), most);
  float lanes[kWidth];
  Simd::store(lanes, most);
#pragma GCC unroll 4
  for (int apart = kWidth / 2; apart > 0; apart /= 2) {
    for (int lane = 0; lane < apart; ++lane) lanes[lane] = lanes[lane + apart] > lanes[lane] ? lanes[lane + apart] : lanes[lane];
  }
  float greatest = lanes[0];
  for (; i < count; ++i) greatest = values[i] > greatest ? values[i] : greatest;
  return greatest;
}

// Values to be taken by falling value, ties to the lower index. They are stored in rows of kLanes, and the greatest value of each
// column is cached, so that taking a value rescans one column only. A value that cannot be taken is NaN.
struct Ranking {
  float* values;  // whole rows
  int64_t count;
  float best[kLanes];

  // NaN counts as the lowest value.
  void start(float* padded_values, int64_t value_count) {
    values = padded_values;
    count = value_count;
    const Vector lowest = Simd::broadcast(-__builtin_inff());
    for_each_vector(
        count, [=](int64_t i, auto load, auto store) { store(padded_values + i, Simd::greater(load(padded_values + i), lowest)); });
    for (int64_t i = count; i % kLanes != 0; ++i) values[i] = __builtin_nanf("");
    rank_columns();
  }
  void rank_columns() {
    Vector greatest[kVectors];
    for (int v = 0; v < kVectors; ++v) greatest[v] = Simd::broadcast(-__builtin_inff());
    for (int64_t i = 0; i < count; i += kLanes) {
      for (int v = 0; v < kVectors; ++v) greatest[v] = Simd::greater(Simd::load(values + i + v * kWidth), greatest[v]);
    }
    for (int v = 0; v < kVectors; ++v) Simd::store(best + v * kWidth, greatest[v]);
  }
  void exclude(int64_t index) { values[index] = __builtin_nanf(""); }

  int64_t take() {
    const Vector greatest = Simd::broadcast(greatest_of(best, kLanes));
    int64_t first = count;
    for (int v = 0; v < kVectors; ++v) {
      uint32_t columns = Simd::equal_lanes(Simd::load(best + v * kWidth), greatest);
      for (; columns != 0; columns &= columns - 1) first = first_in_column(v * kWidth + __builtin_ctz(columns), first);
    }
    exclude(first);
    const int64_t column = first % kLanes;
    float most = -__builtin_inff();
    for (int64_t i = column; i < count; i += kLanes) most = values[i] > most ? values[i] : most;
    best[column] = most;
    return first;
  }

 private:
  // The column's first value that is its best one, if it comes before `end`; else `end`.
  int64_t first_in_column(int64_t column, int64_t end) const {
    for (int64_t i = column; i < end; i += kLanes) {
      if (values[i] == best[column]) return i;
    }
    return end;
  }
};

void softmax(float* out, const float* logits, int64_t count) {
  const Vector most = Simd::broadcast(greatest_of(logits, count));
  for_each_vector(count,
                  [=](int64_t i, auto load, auto store) { store(out + i, exponential(Simd::subtract(load(logits + i), most))); });
  const Vector sum = Simd::broadcast(fold_values(out, count));
  for_each_vector(count, [=](int64_t i, auto load, auto store) { store(out + i, Simd::divide(load(out + i), sum)); });
}

// Leaves only the experts of the best groups in the ranking. group_ranks: room for one float per group, in whole rows of kLanes.
void keep_best_groups(Ranking& experts, const RouterShape& shape, float* group_ranks) {
  const int64_t size = experts.count / shape.groups;
  for (int g = 0; g < shape.groups; ++g) {
    float best = -__builtin_inff();
    float second = -__builtin_inff();
    for (int64_t e = g * size; e < (g + 1) * size; ++e) {
      const float value = experts.values[e];
      second = value > best ? best : value > second ? value : second;
      best = value > best ? value : best;
    }
    group_ranks[g] = shape.group_score == GroupScore::best_two && size > 1 ? best + second : best;
  }
  Ranking groups;
  groups.start(group_ranks, shape.groups);
  for (int kept = 0; kept < shape.groups_kept; ++kept) groups.take();
  // Groups that were taken are NaN now.
  for (int g = 0; g < shape.groups; ++g) {
    if (group_ranks[g] != group_ranks[g]) continue;
    for (int64_t e = g * size; e < (g + 1) * size; ++e) experts.exclude(e);
  }
  experts.rank_columns();
}

// The softmax weight of the highest logit among the logits that are near enough to it, without expert `left_out`. terms: scratch.
float sparsemixer_weight(const float* logits, int64_t count, int64_t left_out, float jitter, float* terms) {
  for (int64_t e = 0; e < count; ++e) terms[e] = logits[e];
  if (left_out >= 0) terms[left_out] = -__builtin_inff();
  const Vector most = Simd::broadcast(greatest_of(terms, count));
  const Vector limit = Simd::broadcast(2.0f * jitter);
  for_each_vector(count, [=](int64_t i, auto load, auto store) {
    const Vector logit = load(terms + i);
    const Vector distance = Simd::divide(Simd::subtract(most, logit), Simd::greater(Simd::absolute(logit), most));
    const Vector share = exponential(Simd::subtract(logit, most));
    store(terms + i, Simd::select_greater(distance, limit, Simd::zero(), share));
  });
  if (left_out >= 0) terms[left_out] = 0.0f;
  return 1.0f / fold_values(terms, count);
}

void choose_by_sparsemixer(const RouterWork& work, const float* logits, int32_t* experts, float* weights, float* ranked,
                           float* terms) {
  for (int64_t e = 0; e < work.experts; ++e) ranked[e] = logits[e];
  Ranking ranking;
  ranking.start(ranked, work.experts);
  for (int rank = 0; rank < work.k; ++rank) {
    weights[rank] = sparsemixer_weight(logits, work.experts, rank == 0 ? -1 : experts[0], work.shape.jitter, terms);
    experts[rank] = static_cast<int32_t>(ranking.take());
  }
}

void choose_by_score(const RouterWork& work, const float* logits, const int32_t* given, int32_t* experts, float* weights,
                     float* scores, float* ranked, float* group_ranks) {
  const int64_t count = work.experts;
  if (work.shape.score == RouterScore::softmax) {
    softmax(scores, logits, count);
  } else if (work.shape.score == RouterScore::sigmoid) {
    for_each_vector(count, [=](int64_t i, auto load, auto store) { store(scores + i, sigmoid(load(logits + i))); });
  } else {
    for_each_vector(count, [=](int64_t i, auto load, auto store) { store(scores + i, softplus(load(logits + i))); });
    for (int64_t e = 0; e < count; ++e) scores[e] = __builtin_sqrtf(scores[e]);
  }
  if (given != nullptr) {
    for (int rank = 0; rank < work.k; ++rank) {
      experts[rank] = given[rank];
      weights[rank] = scores[given[rank]];
    }
    return;
  }
  for (int64_t e = 0; e < count; ++e) ranked[e] = scores[e];
  if (work.choice_bias != nullptr) add(ranked, work.choice_bias, count, 1.0f);
  Ranking ranking;
  ranking.start(ranked, count);
  if (work.shape.groups > 1) keep_best_groups(ranking, work.shape, group_ranks);
  for (int rank = 0; rank < work.k; ++rank) {
    experts[rank] = static_cast<int32_t>(ranking.take());
    weights[rank] = scores[experts[rank]];
  }
}

// scratch: router_scratch() floats.
void router(const RouterWork& work, int64_t row, float* scratch) {
  const float* const logits = work.logits + row * work.experts;
  int32_t* const experts = work.host_experts + row * work.k;
  float* const weights = work.host_weights + row * work.k;
  const int64_t padded = column_blocks(work.experts) * kLanes;
  if (work.shape.score == RouterScore::sparsemixer) {
    choose_by_sparsemixer(work, logits, experts, weights, scratch, scratch + padded);
  } else {
    const int32_t* const given = work.given == nullptr ? nullptr : work.given + row * work.k;
    choose_by_score(work, logits, given, experts, weights, scratch, scratch + padded, scratch + 2 * padded);
  }
  if (work.host_scores != nullptr) {
    float* const scores = work.host_scores + row * work.experts;
    for (int64_t e = 0; e < work.experts; ++e) scores[e] = scratch[e];
  }
  const RouterShape& shape = work.shape;
  if (shape.normalize) {
    float total = weights[0];
    for (int rank = 1; rank < work.k; ++rank) total = total + weights[rank];
    total = total + shape.sum_epsilon;
    total = shape.sum_floor > total ? shape.sum_floor : total;
    for (int rank = 0; rank < work.k; ++rank) weights[rank] = weights[rank] / total;
  }
  for (int rank = 0; rank < work.k; ++rank) {
    if (shape.scale != 1.0f) weights[rank] = weights[rank] * shape.scale;
    if (work.expert_scale != nullptr) weights[rank] = weights[rank] * work.expert_scale[experts[rank]];
  }
}

}  // namespace
}  // namespace odmoe::cpu
