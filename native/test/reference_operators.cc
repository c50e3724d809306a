#include "reference_operators.h"

#include <cmath>
#include <limits>

#include "reference_arithmetic.h"

namespace odmoe::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float comparable(float x) { return std::isnan(x) ? -kInfinity : x; }

// Index of the greatest value that is open; the lowest such index. NaN counts as minus infinity.
size_t best_open(const std::vector<float>& values, const std::vector<bool>& open) {
  size_t best = values.size();
  for (size_t i = 0; i < values.size(); ++i) {
    if (open[i] && (best == values.size() || comparable(values[i]) > comparable(values[best]))) best = i;
  }
  return best;
}

float greatest(const std::vector<float>& values) {
  float most = -kInfinity;
  for (const float value : values) most = value > most ? value : most;
  return most;
}

std::vector<float> router_scores(const std::vector<float>& logits, RouterScore score) {
  std::vector<float> scores;
  if (score == RouterScore::sigmoid) {
    for (const float logit : logits) scores.push_back(reference_sigmoid(logit));
    return scores;
  }
  if (score == RouterScore::sqrt_softplus) {
    for (const float logit : logits) scores.push_back(std::sqrt(reference_softplus(logit)));
    return scores;
  }
  const float most = greatest(logits);
  for (const float logit : logits) scores.push_back(reference_exp(logit - most));
  const float sum = reference_sum(scores);
  for (float& value : scores) value = value / sum;
  return scores;
}

// The experts of the best groups.
std::vector<bool> open_experts(const std::vector<float>& choice, const RouterShape& shape) {
  const size_t groups = static_cast<size_t>(shape.groups);
  const size_t size = choice.size() / groups;
  std::vector<float> worth;
  for (size_t g = 0; g < groups; ++g) {
    std::vector<bool> members(choice.size(), false);
    for (size_t e = g * size; e < (g + 1) * size; ++e) members[e] = true;
    const size_t best = best_open(choice, members);
    members[best] = false;
    const size_t second = best_open(choice, members);
    const bool two = shape.group_score == GroupScore::best_two && size > 1;
    worth.push_back(two ? comparable(choice[best]) + comparable(choice[second]) : comparable(choice[best]));
  }
  std::vector<bool> closed_groups(groups, true);
  std::vector<bool> open(choice.size(), groups == 1);
  if (groups == 1) return open;
  for (int kept = 0; kept < shape.groups_kept; ++kept) {
    const size_t best = best_open(worth, closed_groups);
    closed_groups[best] = false;
    for (size_t e = best * size; e < (best + 1) * size; ++e) open[e] = true;
  }
  return open;
}

float sparsemixer_weight(const std::vector<float>& logits, const std::vector<bool>& open, float jitter) {
  float most = -kInfinity;
  for (size_t e = 0; e < logits.size(); ++e) most = open[e] && logits[e] > most ? logits[e] : most;
  std::vector<float> terms;
  for (size_t e = 0; e < logits.size(); ++e) {
    const float magnitude = std::fabs(logits[e]);
    const bool far = (most - logits[e]) / (magnitude > most ? magnitude : most) > 2.0f * jitter;
    terms.push_back(!open[e] || far ? 0.0f : reference_exp(logits[e] - most));
  }
  return 1.0f / reference_sum(terms);
}

}  // namespace

std::vector<float> reference_norm(const std::vector<float>& in, const float* weight, float divisor, float epsilon, float scale) {
  const float root = std::sqrt(reference_dot(in, in) / divisor + epsilon);
  std::vector<float> out;
  for (size_t i = 0; i < in.size(); ++i) {
    float x = in[i] / root;
    if (weight != nullptr) x = x * weight[i];
    out.push_back(scale == 1.0f ? x : x * scale);
  }
  return out;
}

std::vector<float> reference_layer_norm(const std::vector<float>& in, const std::vector<float>& weight, const float* bias,
                                        float epsilon) {
  const float size = static_cast<float>(in.size());
  const float mean = reference_sum(in) / size;
  std::vector<float> out;
  for (const float x : in) out.push_back(x - mean);
  const float root = std::sqrt(reference_dot(out, out) / size + epsilon);
  for (size_t i = 0; i < out.size(); ++i) {
    const float scaled = out[i] / root * weight[i];
    out[i] = bias == nullptr ? scaled : scaled + bias[i];
  }
  return out;
}

void reference_rotate(float* head, const float* cos, const float* sin, int pairs, RotaryPairing pairing) {
  for (int i = 0; i < pairs; ++i) {
    float& first = pairing == RotaryPairing::halves ? head[i] : head[2 * i];
    float& second = pairing == RotaryPairing::halves ? head[pairs + i] : head[2 * i + 1];
    const float a = first;
    const float b = second;
    first = std::fma(-b, sin[i], a * cos[i]);
    second = std::fma(a, sin[i], b * cos[i]);
  }
}

Choice reference_router(const std::vector<float>& logits, int k, const RouterShape& shape, const std::vector<float>& choice_bias,
                        const std::vector<float>& expert_scale, const std::vector<int32_t>& given) {
  Choice chosen;
  if (shape.score == RouterScore::sparsemixer) {
    std::vector<bool> open(logits.size(), true);
    for (int rank = 0; rank < k; ++rank) {
      const size_t best = best_open(logits, open);
      chosen.weights.push_back(sparsemixer_weight(logits, open, shape.jitter));
      chosen.experts.push_back(static_cast<int32_t>(best));
      open[best] = false;
    }
  } else if (!given.empty()) {
    chosen.scores = router_scores(logits, shape.score);
    chosen.experts = given;
    for (const int32_t expert : given) chosen.weights.push_back(chosen.scores[static_cast<size_t>(expert)]);
  } else {
    chosen.scores = router_scores(logits, shape.score);
    const std::vector<float>& scores = chosen.scores;
    std::vector<float> choice = scores;
    for (size_t e = 0; e < choice_bias.size(); ++e) choice[e] = choice[e] + choice_bias[e];
    std::vector<bool> open = open_experts(choice, shape);
    for (int rank = 0; rank < k; ++rank) {
      const size_t best = best_open(choice, open);
      open[best] = false;
      chosen.experts.push_back(static_cast<int32_t>(best));
      chosen.weights.push_back(scores[best]);
    }
  }
  float total = chosen.weights[0];
  for (size_t rank = 1; rank < chosen.weights.size(); ++rank) total = total + chosen.weights[rank];
  total = total + shape.sum_epsilon;
  if (shape.sum_floor > total) total = shape.sum_floor;
  for (size_t rank = 0; rank < chosen.weights.size(); ++rank) {
    float& weight = chosen.weights[rank];
    if (shape.normalize) weight = weight / total;
    if (shape.scale != 1.0f) weight = weight * shape.scale;
    if (!expert_scale.empty()) weight = weight * expert_scale[static_cast<size_t>(chosen.experts[rank])];
  }
  return chosen;
}

float reference_combined(const CombineWork& work, int i, int j) {
  const int64_t at = int64_t{i} * work.size + j;
  float sum = 0.0f;
  for (int rank = 0; rank < work.k; ++rank) {
    const float weight = work.host_weights[i * work.k + rank];
    const float output = work.outputs[(int64_t{i} * work.k + rank) * work.size + j];
    sum = rank == 0 ? weight * output : std::fma(weight, output, sum);
  }
  if (work.always != nullptr) {
    const float gate = work.always_gates == nullptr ? 1.0f : reference_sigmoid(work.always_gates[i]);
    sum = work.k == 0 ? gate * work.always[at] : std::fma(gate, work.always[at], sum);
  }
  if (!work.add) return sum;
  return work.hidden[at] + (work.scale == 1.0f ? sum : sum * work.scale);
}

void reference_convolve(const ConvolutionWork& work) {
  const int before = work.taps - 1;
  for (int64_t c = 0; c < work.channels; ++c) {
    std::vector<float> line;
    for (int t = 0; t < before; ++t) line.push_back(work.tail[t * work.channels + c]);
    for (int i = 0; i < work.rows; ++i) line.push_back(work.in[i * work.in_stride + c]);
    for (int i = 0; i < work.rows; ++i) {
      float sum = 0.0f;
      for (int t = 0; t < work.taps; ++t) sum = std::fma(work.weight[t * work.channels + c], line[static_cast<size_t>(i + t)], sum);
      if (work.bias != nullptr) sum = sum + work.bias[c];
      work.out[i * work.out_stride + c] = work.silu ? reference_silu(sum) : sum;
    }
    for (int t = 0; t < before; ++t) work.tail[t * work.channels + c] = line[static_cast<size_t>(work.rows + t)];
  }
}

void reference_delta_rule(const DeltaWork& work) {
  for (int i = 0; i < work.rows; ++i) {
    for (int h = 0; h < work.value_heads; ++h) {
      const int key_head = work.tiled_value_heads ? h % work.key_heads : h / (work.value_heads / work.key_heads);
      const int64_t key_at = i * work.stride + int64_t{key_head} * work.key_dim;
      const float beta = reference_sigmoid(work.beta[i * work.gate_stride + h]);
      const auto decay_of = [&](int key) {
        if (work.decay_by_channel) return work.decay[i * work.gate_stride + int64_t{h} * work.key_dim + key];
        const float step = reference_softplus(work.decay[i * work.gate_stride + h] + work.decay_bias[h]);
        const float rate = work.decay_is_rate ? work.decay_log[h] : reference_exp(work.decay_log[h]);
        return reference_exp(-(rate * step));
      };
      for (int j = 0; j < work.value_dim; ++j) {
        const auto state = [&](int key) -> float& { return work.state[(int64_t{h} * work.key_dim + key) * work.value_dim + j]; };
        float remembered = 0.0f;
        for (int d = 0; d < work.key_dim; ++d) {
          state(d) = state(d) * decay_of(d);
          remembered = std::fma(state(d), work.keys[key_at + d], remembered);
        }
        const float change = (work.values[i * work.stride + int64_t{h} * work.value_dim + j] - remembered) * beta;
        float sum = 0.0f;
        for (int d = 0; d < work.key_dim; ++d) {
          state(d) = std::fma(work.keys[key_at + d], change, state(d));
          sum = std::fma(state(d), work.queries[key_at + d], sum);
        }
        work.out[i * work.out_stride + int64_t{h} * work.value_dim + j] = sum;
      }
    }
  }
}

void reference_channel_decay(const DecayWork& work) {
  const Vectors& all = work.decays;
  for (int i = 0; i < all.rows; ++i) {
    for (int h = 0; h < all.vectors; ++h) {
      const float rate = work.decay_is_rate ? work.decay_log[h] : reference_exp(work.decay_log[h]);
      for (int c = 0; c < all.size; ++c) {
        float& decay = all.first[i * all.row_stride + h * all.vector_stride + c];
        const float x = decay + work.decay_bias[int64_t{h} * all.size + c];
        const float slow = work.floor * reference_sigmoid(rate * x);
        decay = reference_exp(work.floor < 0 ? slow : -(rate * reference_softplus(x)));
      }
    }
  }
}

void reference_state_space(const StateSpaceWork& work) {
  for (int i = 0; i < work.rows; ++i) {
    for (int h = 0; h < work.heads; ++h) {
      const int64_t at = i * work.stride + int64_t{h / (work.heads / work.groups)} * work.state_size;
      const float step = reference_softplus(work.steps[i * work.step_stride + h] + work.step_bias[h]);
      const float decay = reference_exp(-(reference_exp(work.decay_log[h]) * step));
      for (int j = 0; j < work.head_dim; ++j) {
        const float value = work.values[i * work.stride + int64_t{h} * work.head_dim + j];
        const float change = value * step;
        float sum = 0.0f;
        for (int d = 0; d < work.state_size; ++d) {
          float& state = work.state[(int64_t{h} * work.state_size + d) * work.head_dim + j];
          state = std::fma(work.inputs[at + d], change, state * decay);
          sum = std::fma(state, work.reads[at + d], sum);
        }
        work.out[i * work.out_stride + int64_t{h} * work.head_dim + j] = std::fma(work.skip[h], value, sum);
      }
    }
  }
}

void reference_stream_weights(const StreamWeightsWork& work) {
  const int n = work.streams;
  for (int row = 0; row < work.rows; ++row) {
    float* const values = work.values + int64_t{row} * work.columns();
    for (int i = 0; i < work.columns(); ++i) {
      const float scaled = std::fma(values[i], work.scales[i < n ? 0 : i < 2 * n ? 1 : 2], work.base[i]);
      values[i] = i < n ? reference_sigmoid(scaled) + work.epsilon : i < 2 * n ? 2.0f * reference_sigmoid(scaled) : scaled;
      if (!work.mixes && i >= n) values[i] = work.magnitude * reference_sigmoid(scaled) + work.epsilon;
    }
    if (work.ending || !work.mixes) continue;
    const auto mix = [&](int j, int k) -> float& { return values[(2 + j) * n + k]; };
    const auto divide_rows = [&](bool by_exponentials) {
      for (int j = 0; j < n; ++j) {
        float sum = 0.0f;
        for (int k = 0; k < n; ++k) sum += mix(j, k);
        for (int k = 0; k < n; ++k) mix(j, k) = by_exponentials ? mix(j, k) / sum + work.epsilon : mix(j, k) / (sum + work.epsilon);
      }
    };
    const auto divide_columns = [&] {
      for (int k = 0; k < n; ++k) {
        float sum = 0.0f;
        for (int j = 0; j < n; ++j) sum += mix(j, k);
        for (int j = 0; j < n; ++j) mix(j, k) = mix(j, k) / (sum + work.epsilon);
      }
    };
    for (int j = 0; j < n; ++j) {
      float highest = -std::numeric_limits<float>::infinity();
      for (int k = 0; k < n; ++k) highest = mix(j, k) > highest ? mix(j, k) : highest;
      for (int k = 0; k < n; ++k) mix(j, k) = reference_exp(mix(j, k) - highest);
    }
    divide_rows(true);
    divide_columns();
    for (int round = 1; round < work.rounds; ++round) {
      divide_rows(false);
      divide_columns();
    }
  }
}

void reference_sum_streams(const StreamSumWork& work) {
  for (int row = 0; row < work.rows; ++row) {
    const float* const weights = work.weights + row * work.weight_stride;
    for (int c = 0; c < work.size; ++c) {
      const auto stream = [&](int i) { return work.streams[(int64_t{row} * work.count + i) * work.size + c]; };
      float sum = weights[0] * stream(0);
      for (int i = 1; i < work.count; ++i) sum = std::fma(weights[i], stream(i), sum);
      work.out[int64_t{row} * work.size + c] = sum;
    }
  }
}

void reference_mix_streams(const StreamMixWork& work) {
  const int n = work.count;
  for (int row = 0; row < work.rows; ++row) {
    const float* const behind = work.weights + int64_t{row} * work.columns() + n;
    for (int c = 0; c < work.size; ++c) {
      const auto stream = [&](int i) -> float& { return work.streams[(int64_t{row} * n + i) * work.size + c]; };
      std::vector<float> mixed;
      for (int k = 0; k < n; ++k) {
        const float output = work.output[int64_t{row} * work.size + c];
        float sum = work.mixes ? behind[k] * output : std::fma(behind[k], output, stream(k));
        for (int j = 0; work.mixes && j < n; ++j) sum = std::fma(behind[n + j * n + k], stream(j), sum);
        mixed.push_back(sum);
      }
      for (int k = 0; k < n; ++k) stream(k) = mixed[static_cast<size_t>(k)];
    }
  }
}

std::vector<float> reference_pool(const PoolWork& work, const float* rows, int position) {
  const int parts = work.overlaps ? 2 : 1;
  const bool has_before = work.overlaps && position >= 2 * work.positions - 1;
  const int first = position + 1 - (has_before ? 2 : 1) * work.positions;
  std::vector<float> entry;
  for (int channel = 0; channel < work.size; ++channel) {
    std::vector<float> logits;
    std::vector<float> values;
    for (int p = first; p <= position; ++p) {
      const int part = parts == 2 && p > position - work.positions ? 1 : 0;
      const float* const vectors = rows + int64_t{p} * 2 * parts * work.size + channel;
      values.push_back(vectors[part * work.size]);
      logits.push_back(vectors[(parts + part) * work.size] +
                       work.gate_biases[(p % work.positions * parts + part) * work.size + channel]);
    }
    const float most = greatest(logits);
    float sum = 0.0f;
    float weights = 0.0f;
    for (size_t i = 0; i < logits.size(); ++i) {
      const float weight = reference_exp(logits[i] - most);
      weights = weights + weight;
      sum = std::fma(weight, values[i], sum);
    }
    entry.push_back(sum / weights);
  }
  return entry;
}

}  // namespace odmoe::test
