// Causal convolutions, the gated delta rule and the state space rule against the reference: several sequences at once, rows that continue from earlier
// ones.
#include <algorithm>
#include <cmath>

#include "compared.h"

namespace odmoe::cuda_test {
namespace {

// Values without the large ones of random_floats, which a recurrence makes infinite.
std::vector<float> moderate_floats(std::mt19937& random, int64_t count) {
  std::vector<float> values = random_floats(random, count);
  for (float& value : values) value = std::clamp(value, -4.0f, 4.0f);
  return values;
}

void append(std::vector<float>& all, const std::vector<float>& more) { all.insert(all.end(), more.begin(), more.end()); }

struct Convolution {
  int taps;
  int channels;
  bool silu;
  std::vector<int> rows;  // rows of each sequence
};

void convolves(Devices& devices, const Convolution& of, int64_t gap) {
  std::vector<std::vector<float>> ins;
  std::vector<std::vector<float>> tails;
  const std::vector<float> weight = random_floats(devices.random, int64_t{of.taps} * of.channels);
  const std::vector<float> bias = random_floats(devices.random, of.channels);
  for (const int rows : of.rows) {
    ins.push_back(strange_floats(devices.random, rows * (of.channels + gap)));
    tails.push_back(random_floats(devices.random, int64_t{of.taps - 1} * of.channels));
  }
  compare(devices, named("convolution", of.rows[0], of.channels, gap) + ", taps " + std::to_string(of.taps),
          [&](const std::shared_ptr<Backend>& backend) {
            const FencedFloats by(backend, weight, 0);
            const FencedFloats plus(backend, bias, 1);
            std::vector<std::unique_ptr<FencedFloats>> in, tail, out;
            std::vector<ConvolutionWork> works;
            for (size_t i = 0; i < of.rows.size(); ++i) {
              in.push_back(std::make_unique<FencedFloats>(backend, ins[i], gap));
              tail.push_back(std::make_unique<FencedFloats>(backend, tails[i], 0));
              out.push_back(std::make_unique<FencedFloats>(backend, poison(of.rows[i] * (of.channels + 2 * gap)), 0));
              works.push_back({out[i]->data(), of.channels + 2 * gap, in[i]->data(), of.channels + gap, tail[i]->data(), by.data(),
                               of.rows[i], of.taps, of.channels, of.silu, of.taps % 3 == 1 ? plus.data() : nullptr});
            }
            backend->convolve(works.data(), static_cast<int>(works.size()));
            std::vector<float> all;
            for (const auto* const list : {&out, &tail}) {
              for (const auto& floats : *list) append(all, floats->values());
            }
            return all;
          });
}

struct Delta {
  int key_heads;
  int value_heads;
  int key_dim;
  int value_dim;
  std::vector<int> rows;  // rows of each sequence
  bool tiled = false;     // value heads, and rates in place of their logarithms
  bool by_channel = false;
};

// One call with all rows, or a call for each row.
void applies_delta_rule(Devices& devices, const Delta& of, int64_t gap) {
  const int64_t key_size = int64_t{of.key_heads} * of.key_dim;
  const int64_t value_size = int64_t{of.value_heads} * of.value_dim;
  const int64_t stride = 2 * key_size + value_size + gap;
  const int64_t decays = int64_t{of.value_heads} * (of.by_channel ? of.key_dim : 1);
  const int64_t gate_stride = of.value_heads + decays + gap;
  std::vector<float> decay_log = moderate_floats(devices.random, of.value_heads);
  if (of.tiled) {
    for (float& rate : decay_log) rate = std::abs(rate);
  }
  const std::vector<float> decay_bias = moderate_floats(devices.random, of.value_heads);
  std::vector<std::vector<float>> rows_of, gates_of, states;
  for (const int rows : of.rows) {
    rows_of.push_back(moderate_floats(devices.random, rows * stride));
    for (float& value : rows_of.back()) value *= 0.25f;
    gates_of.push_back(random_floats(devices.random, rows * gate_stride));
    for (float& gate : gates_of.back()) gate = of.by_channel ? std::fmod(std::abs(gate), 1.0f) : gate;
    states.push_back(moderate_floats(devices.random, key_size / of.key_heads * value_size));
  }
  const auto outputs = [&](const std::shared_ptr<Backend>& backend, bool row_by_row) {
    const FencedFloats logs(backend, decay_log, 0);
    const FencedFloats biases(backend, decay_bias, 1);
    std::vector<std::unique_ptr<FencedFloats>> in, gates, state, out;
    std::vector<DeltaWork> works;
    for (size_t i = 0; i < of.rows.size(); ++i) {
      in.push_back(std::make_unique<FencedFloats>(backend, rows_of[i], gap));
      gates.push_back(std::make_unique<FencedFloats>(backend, gates_of[i], 0));
      state.push_back(std::make_unique<FencedFloats>(backend, states[i], 0));
      out.push_back(std::make_unique<FencedFloats>(backend, poison(of.rows[i] * (value_size + gap)), 0));
      works.push_back({out[i]->data(),
                       value_size + gap,
                       in[i]->data(),
                       in[i]->data() + key_size,
                       in[i]->data() + 2 * key_size,
                       stride,
                       gates[i]->data(),
                       gates[i]->data() + of.value_heads,
                       gate_stride,
                       logs.data(),
                       biases.data(),
                       state[i]->data(),
                       of.rows[i],
                       of.key_heads,
                       of.value_heads,
                       of.key_dim,
                       of.value_dim,
                       of.tiled,
                       of.tiled,
                       of.by_channel});
    }
    const int longest = *std::max_element(of.rows.begin(), of.rows.end());
    for (int row = 0; row < (row_by_row ? longest : 1); ++row) {
      std::vector<DeltaWork> some;
      for (const DeltaWork& work : works) {
        if (row_by_row && row >= work.rows) continue;
        DeltaWork part = work;
        part.out += row * work.out_stride;
        part.queries += row * stride;
        part.keys += row * stride;
        part.values += row * stride;
        part.beta += row * gate_stride;
        part.decay += row * gate_stride;
        if (row_by_row) part.rows = 1;
        some.push_back(part);
      }
      backend->delta_rule(some.data(), static_cast<int>(some.size()));
    }
    std::vector<float> all;
    for (const auto* const list : {&out, &state}) {
      for (const auto& floats : *list) append(all, floats->values());
    }
    return all;
  };
  const std::string what = named("delta rule", of.key_dim, of.value_dim, gap) + ", heads " + std::to_string(of.key_heads) + "/" +
                           std::to_string(of.value_heads) + (of.tiled ? ", tiled" : "") + (of.by_channel ? ", by channel" : "");
  const std::vector<float> expected = outputs(devices.reference, false);
  expect_equal(what, outputs(devices.cuda, false), expected);
  expect_equal(what + ", row by row", outputs(devices.cuda, true), expected);
}

void makes_channel_decays(Devices& devices, int heads, int size, float floor, int64_t gap) {
  constexpr int kRows = 9;
  const int64_t values = int64_t{heads} * size;
  const int64_t stride = values + gap;
  std::vector<float> decay_log = moderate_floats(devices.random, heads);
  const std::vector<float> decay_bias = moderate_floats(devices.random, values);
  const std::vector<float> before = strange_floats(devices.random, kRows * stride);
  for (const bool rates : {false, true}) {
    if (rates) {
      for (float& rate : decay_log) rate = std::abs(rate);
    }
    compare(devices, named("decay of channels", heads, size, gap), [&](const std::shared_ptr<Backend>& backend) {
      const FencedFloats logs(backend, decay_log, 0);
      const FencedFloats biases(backend, decay_bias, 1);
      const FencedFloats decays(backend, before, gap);
      backend->channel_decay({{decays.data(), stride, size, kRows, heads, size}, logs.data(), biases.data(), rates, floor});
      return decays.values();
    });
  }
}

struct Space {
  int groups;
  int heads;
  int state_size;
  int head_dim;
  std::vector<int> rows;  // rows of each sequence
};

// One call with all rows, or a call for each row.
void applies_state_space(Devices& devices, const Space& of, int64_t gap) {
  const int64_t inner = int64_t{of.heads} * of.head_dim;
  const int64_t size = int64_t{of.groups} * of.state_size;
  const int64_t stride = inner + 2 * size + gap;
  const int64_t step_stride = of.heads + gap;
  const std::vector<float> decay_log = moderate_floats(devices.random, of.heads);
  const std::vector<float> step_bias = moderate_floats(devices.random, of.heads);
  const std::vector<float> skip = moderate_floats(devices.random, of.heads);
  std::vector<std::vector<float>> rows_of, steps_of, states;
  for (const int rows : of.rows) {
    rows_of.push_back(moderate_floats(devices.random, rows * stride));
    steps_of.push_back(moderate_floats(devices.random, rows * step_stride));
    states.push_back(moderate_floats(devices.random, of.state_size * inner));
  }
  const auto outputs = [&](const std::shared_ptr<Backend>& backend, bool row_by_row) {
    const FencedFloats logs(backend, decay_log, 0);
    const FencedFloats biases(backend, step_bias, 1);
    const FencedFloats skips(backend, skip, 1);
    std::vector<std::unique_ptr<FencedFloats>> in, steps, state, out;
    std::vector<StateSpaceWork> works;
    for (size_t i = 0; i < of.rows.size(); ++i) {
      in.push_back(std::make_unique<FencedFloats>(backend, rows_of[i], gap));
      steps.push_back(std::make_unique<FencedFloats>(backend, steps_of[i], 0));
      state.push_back(std::make_unique<FencedFloats>(backend, states[i], 0));
      out.push_back(std::make_unique<FencedFloats>(backend, poison(of.rows[i] * (inner + gap)), 0));
      works.push_back({out[i]->data(), inner + gap, in[i]->data(), in[i]->data() + inner, in[i]->data() + inner + size, stride,
                       steps[i]->data(), step_stride, logs.data(), biases.data(), skips.data(), state[i]->data(), of.rows[i],
                       of.groups, of.heads, of.state_size, of.head_dim});
    }
    const int longest = *std::max_element(of.rows.begin(), of.rows.end());
    for (int row = 0; row < (row_by_row ? longest : 1); ++row) {
      std::vector<StateSpaceWork> some;
      for (const StateSpaceWork& work : works) {
        if (row_by_row && row >= work.rows) continue;
        StateSpaceWork part = work;
        part.out += row * work.out_stride;
        part.values += row * stride;
        part.inputs += row * stride;
        part.reads += row * stride;
        part.steps += row * step_stride;
        if (row_by_row) part.rows = 1;
        some.push_back(part);
      }
      backend->state_space(some.data(), static_cast<int>(some.size()));
    }
    std::vector<float> all;
    for (const auto* const list : {&out, &state}) {
      for (const auto& floats : *list) append(all, floats->values());
    }
    return all;
  };
  const std::string what = named("state space", of.state_size, of.head_dim, gap) + ", heads " + std::to_string(of.heads);
  const std::vector<float> expected = outputs(devices.reference, false);
  expect_equal(what, outputs(devices.cuda, false), expected);
  expect_equal(what + ", row by row", outputs(devices.cuda, true), expected);
}

}  // namespace

void test_recurrence(Devices& devices) {
  for (const int64_t gap : {0, 3}) {
    for (const int taps : {1, 2, 3, 4, 20}) {
      convolves(devices, {taps, 100, taps % 2 == 0, {1}}, gap);
      convolves(devices, {taps, 257, taps % 2 == 1, {37, 1, 2, 3, 16, 40}}, gap);
    }
    applies_delta_rule(devices, {2, 4, 16, 8, {1, 5, 3}}, gap);
    applies_delta_rule(devices, {1, 1, 20, 33, {7}}, gap);
    applies_delta_rule(devices, {2, 2, 64, 64, {3, 1}}, gap);
    applies_delta_rule(devices, {1, 3, 64, 40, {4}}, gap);
    applies_delta_rule(devices, {2, 4, 128, 128, {6, 1}}, gap);
    applies_delta_rule(devices, {4, 4, 128, 128, {6, 1}, false, true}, gap);
    applies_delta_rule(devices, {1, 3, 64, 40, {4}, false, true}, gap);
    applies_delta_rule(devices, {2, 4, 12, 33, {1, 5, 3}, true, true}, gap);
    makes_channel_decays(devices, 4, 128, 0, gap);
    makes_channel_decays(devices, 3, 37, -5, gap);
    applies_state_space(devices, {2, 4, 16, 8, {1, 5, 3}}, gap);
    applies_state_space(devices, {1, 1, 20, 33, {7}}, gap);
    applies_state_space(devices, {1, 3, 64, 40, {4}}, gap);
    applies_state_space(devices, {2, 4, 128, 64, {6, 1}}, gap);
  }
}

}  // namespace odmoe::cuda_test
