// The causal convolution, the gated delta rule and the state space rule against the one arithmetic, however rows are cut into batches.
#include <cmath>

#include "native_tests.h"
#include "reference_operators.h"

namespace odmoe::test {
namespace {

// Batches of these sizes, one after the other, give the same results as all rows at once.
const std::vector<std::vector<int>> kCuts = {{39}, {1, 1, 37}, {16, 17, 6}, {2, 3, 34}};
constexpr int kRows = 39;

struct ConvolutionCase {
  int taps;
  int64_t channels;
  bool silu;
  bool bias = false;
};

// Two sequences in each call; the second has other channels in another place.
void convolves(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  for (const ConvolutionCase test : {ConvolutionCase{4, 100, true}, ConvolutionCase{3, 2049, false}, ConvolutionCase{1, 5, true},
                                     ConvolutionCase{2, 33, false}, ConvolutionCase{9, 40, true}, ConvolutionCase{64, 17, false},
                                     ConvolutionCase{4, 100, true, true}, ConvolutionCase{1, 5, false, true}}) {
    const int64_t stride = test.channels + 3;
    const size_t tail_size = static_cast<size_t>((test.taps - 1) * test.channels);
    auto in = random_values(static_cast<size_t>(2 * kRows * stride), 1);
    auto tail = random_values(2 * tail_size, 2);
    auto weight = random_values(static_cast<size_t>(test.taps * test.channels), 3);
    DeviceFloats device_in(*backend, in);
    DeviceFloats device_weight(*backend, weight);
    const auto bias = random_values(static_cast<size_t>(test.channels), 9);
    DeviceFloats device_bias(*backend, bias);
    const auto first_tail = tail;
    std::vector<float> out(in.size());
    for (int s = 0; s < 2; ++s) {
      reference_convolve({out.data() + s * kRows * stride, stride, in.data() + s * kRows * stride, stride,
                          tail.data() + static_cast<size_t>(s) * tail_size, weight.data(), kRows, test.taps, test.channels,
                          test.silu, test.bias ? bias.data() : nullptr});
    }
    for (const auto& cuts : kCuts) {
      DeviceFloats device_out(*backend, in.size());
      DeviceFloats device_tail(*backend, first_tail);
      int64_t done = 0;
      for (const int rows : cuts) {
        std::vector<ConvolutionWork> works;
        for (int s = 0; s < 2; ++s) {
          const int64_t at = (s * kRows + done) * stride;
          works.push_back({device_out.data() + at, stride, device_in.data() + at, stride,
                           device_tail.data() + static_cast<size_t>(s) * tail_size, device_weight.data(), rows, test.taps,
                           test.channels, test.silu, test.bias ? device_bias.data() : nullptr});
        }
        backend->convolve(works.data(), 2);
        done += rows;
      }
      check_same(device_out.read(), out, "convolution of " + std::to_string(test.taps) + " taps");
      check_same(device_tail.read(), tail, "tail of " + std::to_string(test.taps) + " taps");
    }
  }
  const ConvolutionWork wide{nullptr, 0, nullptr, 0, nullptr, nullptr, 1, 65, 1, false};
  check_refused(ErrorCode::model_unsupported, [&] { backend->convolve(&wide, 1); });
}

struct DeltaCase {
  int key_heads;
  int value_heads;
  int key_dim;
  int value_dim;
  bool tiled = false;
  bool rates = false;
  bool by_channel = false;

  int64_t decays() const { return int64_t{value_heads} * (by_channel ? key_dim : 1); }
  int64_t gate_stride() const { return value_heads + decays(); }
};

// Sequences of one call, with their inputs next to one another, as projections write them.
struct DeltaInputs {
  DeltaCase test;
  int64_t stride;
  std::vector<float> rows;   // queries, keys, values
  std::vector<float> gates;  // beta, decay (the factors themselves, if by channel)
  std::vector<float> decay_log;
  std::vector<float> decay_bias;
  std::vector<float> state;

  explicit DeltaInputs(const DeltaCase& of) : test(of) {
    const int64_t keys = int64_t{of.key_heads} * of.key_dim;
    const int64_t values = int64_t{of.value_heads} * of.value_dim;
    const auto heads = static_cast<size_t>(of.value_heads);
    stride = 2 * keys + values + 1;
    rows = random_values(static_cast<size_t>(kRows * stride), 4, 0.2f);
    const auto gate_stride = static_cast<size_t>(of.gate_stride());
    gates = random_values(kRows * gate_stride, 5, 2.0f);
    gates[0] = 60.0f;
    gates[heads] = 45.0f;
    gates[gate_stride + heads] = -90.0f;
    for (size_t i = 0; of.by_channel && i < gates.size(); ++i) {
      if (i % gate_stride >= heads) gates[i] = std::fmod(std::fabs(gates[i]), 1.0f);
    }
    decay_log = random_values(heads, 6);
    // A rate is never negative.
    if (of.rates) {
      for (float& rate : decay_log) rate = std::fabs(rate);
    }
    decay_bias = random_values(heads, 7);
    state = random_values(heads * static_cast<size_t>(of.key_dim * of.value_dim), 8);
  }

  // The work for rows [first, first + count); the pointers are the starts of the buffers' copies.
  DeltaWork work(float* out, const float* in, const float* gate, const float* log, const float* bias, float* states, int first,
                 int count) const {
    const int64_t keys = int64_t{test.key_heads} * test.key_dim;
    const int64_t values = int64_t{test.value_heads} * test.value_dim;
    const float* const row = in + first * stride;
    const float* const row_gates = gate + first * test.gate_stride();
    return {out + first * values,
            values,
            row,
            row + keys,
            row + 2 * keys,
            stride,
            row_gates,
            row_gates + test.value_heads,
            test.gate_stride(),
            log,
            bias,
            states,
            count,
            test.key_heads,
            test.value_heads,
            test.key_dim,
            test.value_dim,
            test.tiled,
            test.rates,
            test.by_channel};
  }
};

void follows_the_delta_rule(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  for (const DeltaCase test : {DeltaCase{2, 4, 128, 128}, DeltaCase{1, 1, 3, 5}, DeltaCase{3, 3, 16, 33}, DeltaCase{2, 6, 24, 100},
                               DeltaCase{2, 6, 24, 100, true, false}, DeltaCase{2, 4, 128, 128, true, true},
                               DeltaCase{2, 4, 16, 32, false, true}, DeltaCase{4, 4, 128, 128, false, false, true},
                               DeltaCase{1, 3, 20, 75, false, false, true}, DeltaCase{2, 4, 9, 13, true, false, true}}) {
    const DeltaInputs inputs(test);
    const size_t values = static_cast<size_t>(kRows * test.value_heads * test.value_dim);
    std::vector<float> out(values);
    std::vector<float> state = inputs.state;
    reference_delta_rule(inputs.work(out.data(), inputs.rows.data(), inputs.gates.data(), inputs.decay_log.data(),
                                     inputs.decay_bias.data(), state.data(), 0, kRows));
    DeviceFloats rows(*backend, inputs.rows);
    DeviceFloats gates(*backend, inputs.gates);
    DeviceFloats log(*backend, inputs.decay_log);
    DeviceFloats bias(*backend, inputs.decay_bias);
    for (const auto& cuts : kCuts) {
      // A second sequence in the same call begins with a state of zeros.
      DeviceFloats device_out(*backend, values);
      DeviceFloats other_out(*backend, values);
      DeviceFloats device_state(*backend, inputs.state);
      DeviceFloats other_state(*backend, inputs.state.size());
      int done = 0;
      for (const int count : cuts) {
        const auto work = [&](DeviceFloats& to, DeviceFloats& states) {
          return inputs.work(to.data(), rows.data(), gates.data(), log.data(), bias.data(), states.data(), done, count);
        };
        const DeltaWork works[2] = {work(device_out, device_state), work(other_out, other_state)};
        backend->delta_rule(works, 2);
        done += count;
      }
      const std::string what = std::string(test.by_channel ? "delta rule by channel, " : "delta rule, ") +
                               std::to_string(test.key_dim) + " x " + std::to_string(test.value_dim);
      check_same(device_out.read(), out, what);
      check_same(device_state.read(), state, what + ", state");
    }
  }
}

struct DecayCase {
  int heads;
  int size;
  float floor;
  bool rates = false;
};

void makes_channel_decays(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  for (const DecayCase test :
       {DecayCase{4, 128, 0}, DecayCase{3, 37, 0, true}, DecayCase{2, 64, -5}, DecayCase{5, 3, -0.25f, true}}) {
    const int64_t values = int64_t{test.heads} * test.size;
    const int64_t stride = values + 5;
    auto decays = random_values(static_cast<size_t>(kRows * stride), 24, 3.0f);
    decays[0] = 1e4f;
    decays[1] = -1e4f;
    decays[2] = 30.0f;
    auto log = random_values(static_cast<size_t>(test.heads), 25);
    if (test.rates) {
      for (float& rate : log) rate = std::fabs(rate);
    }
    const auto bias = random_values(static_cast<size_t>(values), 26);
    DeviceFloats device_decays(*backend, decays);
    DeviceFloats device_log(*backend, log);
    DeviceFloats device_bias(*backend, bias);
    const auto work = [&](float* first, const float* logs, const float* biases) {
      return DecayWork{{first, stride, test.size, kRows, test.heads, test.size}, logs, biases, test.rates, test.floor};
    };
    reference_channel_decay(work(decays.data(), log.data(), bias.data()));
    backend->channel_decay(work(device_decays.data(), device_log.data(), device_bias.data()));
    check_same(device_decays.read(), decays, "decays of " + std::to_string(test.size) + " channels");
    const float least = test.floor < 0 ? std::exp(test.floor) * 0.999f : 0.0f;
    check(decays[2] >= least && decays[2] <= 1, "a factor is between its floor and 1");
  }
}

// The factors are near those in double precision.
void channel_decay_is_close() {
  for (const float floor : {0.0f, -5.0f}) {
    const auto before = random_values(40, 27, 3.0f);
    auto after = before;
    const float log = 0.5f;
    const auto bias = random_values(40, 28);
    reference_channel_decay(
        {.decays = {after.data(), 40, 40, 1, 1, 40}, .decay_log = &log, .decay_bias = bias.data(), .floor = floor});
    for (size_t i = 0; i < before.size(); ++i) {
      const double x = double{before[i]} + bias[i];
      const double rate = std::exp(double{log});
      const double slow = floor / (1 + std::exp(-rate * x));
      const double exact = std::exp(floor < 0 ? slow : -rate * std::log1p(std::exp(x)));
      check(std::fabs(after[i] - exact) < 1e-6, "channel " + std::to_string(i));
    }
  }
}

// The result is near that of the rule in double precision.
void delta_rule_is_close() {
  const DeltaCase test{1, 1, 16, 8};
  const DeltaInputs inputs(test);
  std::vector<float> out(static_cast<size_t>(kRows * test.value_dim));
  std::vector<float> state = inputs.state;
  const DeltaWork work = inputs.work(out.data(), inputs.rows.data(), inputs.gates.data(), inputs.decay_log.data(),
                                     inputs.decay_bias.data(), state.data(), 0, kRows);
  std::vector<double> exact(inputs.state.begin(), inputs.state.end());
  reference_delta_rule(work);
  for (int i = 0; i < kRows; ++i) {
    const double beta = 1 / (1 + std::exp(-double{work.beta[i * work.gate_stride]}));
    const double decay = std::exp(-std::exp(double{work.decay_log[0]}) *
                                  std::log1p(std::exp(double{work.decay[i * work.gate_stride]} + work.decay_bias[0])));
    for (int j = 0; j < test.value_dim; ++j) {
      const auto at = [&](int d) -> double& { return exact[static_cast<size_t>(d * test.value_dim + j)]; };
      double remembered = 0;
      for (int d = 0; d < test.key_dim; ++d) remembered += (at(d) *= decay) * work.keys[i * work.stride + d];
      double sum = 0;
      for (int d = 0; d < test.key_dim; ++d) {
        at(d) += work.keys[i * work.stride + d] * (work.values[i * work.stride + j] - remembered) * beta;
        sum += at(d) * work.queries[i * work.stride + d];
      }
      check(std::fabs(sum - out[static_cast<size_t>(i * test.value_dim + j)]) < 1e-5, "row " + std::to_string(i));
    }
  }
}

struct SpaceCase {
  int groups;
  int heads;
  int state_size;
  int head_dim;
};

// Rows of [x | B | C], and steps beside them.
struct SpaceInputs {
  SpaceCase test;
  int64_t stride;
  std::vector<float> rows;
  std::vector<float> steps;
  std::vector<float> decay_log;
  std::vector<float> step_bias;
  std::vector<float> skip;
  std::vector<float> state;

  explicit SpaceInputs(const SpaceCase& of) : test(of) {
    const auto heads = static_cast<size_t>(of.heads);
    stride = int64_t{of.heads} * of.head_dim + 2 * int64_t{of.groups} * of.state_size + 1;
    rows = random_values(static_cast<size_t>(kRows * stride), 14, 0.2f);
    steps = random_values(kRows * heads, 15, 2.0f);
    steps[0] = 60.0f;
    steps[heads] = -90.0f;
    decay_log = random_values(heads, 16);
    step_bias = random_values(heads, 17);
    skip = random_values(heads, 18);
    state = random_values(heads * static_cast<size_t>(of.state_size * of.head_dim), 19);
  }

  StateSpaceWork work(float* out, const float* in, const float* step, const float* const (&heads)[3], float* states, int first,
                      int count) const {
    const int64_t inner = int64_t{test.heads} * test.head_dim;
    const float* const row = in + first * stride;
    return {out + first * inner,
            inner,
            row,
            row + inner,
            row + inner + int64_t{test.groups} * test.state_size,
            stride,
            step + int64_t{first} * test.heads,
            test.heads,
            heads[0],
            heads[1],
            heads[2],
            states,
            count,
            test.groups,
            test.heads,
            test.state_size,
            test.head_dim};
  }
};

void follows_the_state_space(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  for (const SpaceCase test :
       {SpaceCase{2, 4, 128, 64}, SpaceCase{1, 1, 3, 5}, SpaceCase{3, 3, 16, 33}, SpaceCase{2, 6, 24, 100}}) {
    const SpaceInputs inputs(test);
    const size_t values = static_cast<size_t>(kRows * test.heads * test.head_dim);
    std::vector<float> out(values);
    std::vector<float> state = inputs.state;
    reference_state_space(inputs.work(out.data(), inputs.rows.data(), inputs.steps.data(),
                                      {inputs.decay_log.data(), inputs.step_bias.data(), inputs.skip.data()}, state.data(), 0,
                                      kRows));
    DeviceFloats rows(*backend, inputs.rows);
    DeviceFloats steps(*backend, inputs.steps);
    DeviceFloats log(*backend, inputs.decay_log);
    DeviceFloats bias(*backend, inputs.step_bias);
    DeviceFloats skip(*backend, inputs.skip);
    for (const auto& cuts : kCuts) {
      // A second sequence in the same call begins with a state of zeros.
      DeviceFloats device_out(*backend, values);
      DeviceFloats other_out(*backend, values);
      DeviceFloats device_state(*backend, inputs.state);
      DeviceFloats other_state(*backend, inputs.state.size());
      int done = 0;
      for (const int count : cuts) {
        const auto work = [&](DeviceFloats& to, DeviceFloats& states) {
          return inputs.work(to.data(), rows.data(), steps.data(), {log.data(), bias.data(), skip.data()}, states.data(), done,
                             count);
        };
        const StateSpaceWork works[2] = {work(device_out, device_state), work(other_out, other_state)};
        backend->state_space(works, 2);
        done += count;
      }
      const std::string what = "state space, " + std::to_string(test.state_size) + " x " + std::to_string(test.head_dim);
      check_same(device_out.read(), out, what);
      check_same(device_state.read(), state, what + ", state");
    }
  }
}

// The result is near that of the rule in double precision.
void state_space_is_close() {
  const SpaceCase test{1, 1, 16, 8};
  const SpaceInputs inputs(test);
  std::vector<float> out(static_cast<size_t>(kRows * test.head_dim));
  std::vector<float> state = inputs.state;
  const StateSpaceWork work =
      inputs.work(out.data(), inputs.rows.data(), inputs.steps.data(),
                  {inputs.decay_log.data(), inputs.step_bias.data(), inputs.skip.data()}, state.data(), 0, kRows);
  std::vector<double> exact(inputs.state.begin(), inputs.state.end());
  reference_state_space(work);
  for (int i = 0; i < kRows; ++i) {
    const double step = std::log1p(std::exp(double{work.steps[i]} + work.step_bias[0]));
    const double decay = std::exp(-std::exp(double{work.decay_log[0]}) * step);
    for (int j = 0; j < test.head_dim; ++j) {
      const double value = work.values[i * work.stride + j];
      double sum = work.skip[0] * value;
      for (int d = 0; d < test.state_size; ++d) {
        double& at = exact[static_cast<size_t>(d * test.head_dim + j)];
        at = at * decay + step * value * work.inputs[i * work.stride + d];
        sum += at * work.reads[i * work.stride + d];
      }
      check(std::fabs(sum - out[static_cast<size_t>(i * test.head_dim + j)]) < 1e-5, "row " + std::to_string(i));
    }
  }
}

}  // namespace

void add_recurrence_cases(std::vector<Case>& cases) {
  cases.push_back({"delta rule: close to double precision", delta_rule_is_close});
  cases.push_back({"channel decay: close to double precision", channel_decay_is_close});
  cases.push_back({"state space: close to double precision", state_space_is_close});
  for (const std::string& set : instruction_sets()) {
    for (const int threads : {1, 3}) {
      const std::string equals = ": equals the one arithmetic, " + std::to_string(threads) + " threads";
      cases.push_back({"convolution " + set + equals, [=] { convolves(set, threads); }});
      cases.push_back({"delta rule " + set + equals, [=] { follows_the_delta_rule(set, threads); }});
      cases.push_back({"channel decay " + set + equals, [=] { makes_channel_decays(set, threads); }});
      cases.push_back({"state space " + set + equals, [=] { follows_the_state_space(set, threads); }});
    }
  }
}

}  // namespace odmoe::test
