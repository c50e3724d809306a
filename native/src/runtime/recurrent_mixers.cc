// Mixers with a state that goes from position to position: the gated delta net, the gated short convolution and the state space. A sequence stores
// their state, an older state and the rows after that, so that positions can be undone (odmoe/recurrence_log.h).
#include <algorithm>
#include <cmath>
#include <vector>

#include "mixers.h"
#include "odmoe/error.h"

namespace odmoe {
namespace {

// Epsilon of the L2 norms of a delta net's queries and keys; it is added to the sum of squares.
constexpr float kL2Epsilon = 1e-6f;

// Rows of one sequence that run through a recurrence. Their rows in the scratch begin at first_row.
struct RecurrentRows {
  const float* in = nullptr;
  int first_row = 0;
  int rows = 0;
  int turn = 0;
  float* state = nullptr;
};

// Channels with a convolution tensor of their own. A state's tails stand one behind another, in the same order.
struct ConvolutionPart {
  DenseRole weight;
  int64_t first;
  int64_t channels;
};

// A mixer's recurrence over rows in the log's layout, `count` in all, whose runs have `turns` turns.
class Recurrence {
 public:
  Recurrence(PassState& pass, const DenseWeights& weights, int64_t row_floats, int64_t channels, int taps, bool silu)
      : pass_(pass),
        weights_(weights),
        row_floats_(row_floats),
        channels_(channels),
        taps_(taps),
        parts_{{DenseRole::convolution, 0, channels}},
        silu_(silu) {}
  virtual ~Recurrence() = default;
  Recurrence(const Recurrence&) = delete;
  Recurrence& operator=(const Recurrence&) = delete;

  int64_t row_floats() const { return row_floats_; }
  virtual void run(const std::vector<RecurrentRows>& runs, int turns, int count) = 0;

 protected:
  void convolve(float* out, const std::vector<RecurrentRows>& runs, int turns) {
    const auto add = [&](std::vector<ConvolutionWork>& works, const RecurrentRows& run) {
      for (const ConvolutionPart& part : parts_) works.push_back(convolution_work(part, out, run));
    };
    in_turns<ConvolutionWork>(runs, turns, add,
                              [this](const ConvolutionWork* works, int count) { pass_.backend().convolve(works, count); });
  }

  // Calls the operator once for each turn, with the works that `add` makes of the runs of that turn.
  template <typename Work, typename Add, typename Operator>
  static void in_turns(const std::vector<RecurrentRows>& runs, int turns, Add add, Operator call) {
    std::vector<Work> works;
    for (int turn = 0; turn < turns; turn++) {
      works.clear();
      for (const RecurrentRows& run : runs) {
        if (run.turn == turn) add(works, run);
      }
      call(works.data(), static_cast<int>(works.size()));
    }
  }

  PassState& pass_;
  const DenseWeights& weights_;
  const int64_t row_floats_;
  const int64_t channels_;
  const int taps_;
  std::vector<ConvolutionPart> parts_;

 private:
  ConvolutionWork convolution_work(const ConvolutionPart& part, float* out, const RecurrentRows& run) const {
    const float* const bias = weights_.vector(DenseRole::convolution_bias);
    return {.out = out + run.first_row * channels_ + part.first,
            .out_stride = channels_,
            .in = run.in + part.first,
            .in_stride = row_floats_,
            .tail = run.state + part.first * (taps_ - 1),
            .weight = weights_.vector(part.weight),
            .rows = run.rows,
            .taps = taps_,
            .channels = part.channels,
            .silu = silu_,
            .bias = bias == nullptr ? nullptr : bias + part.first};
  }

  const bool silu_;
};

class DeltaRecurrence final : public Recurrence {
 public:
  // convolved: rows x channels; out: rows x value_size.
  DeltaRecurrence(PassState& pass, const DenseWeights& weights, const DeltaMixer& mixer, float* convolved, float* out)
      : Recurrence(pass, weights, mixer.row_floats(), mixer.channels(), mixer.taps, true),
        mixer_(mixer),
        convolved_(convolved),
        out_(out) {
    if (!mixer.separate_convolutions) return;
    parts_ = {{DenseRole::query_convolution, 0, mixer.key_size()},
              {DenseRole::key_convolution, mixer.key_size(), mixer.key_size()},
              {DenseRole::value_convolution, 2 * mixer.key_size(), mixer.value_size()}};
  }

  void run(const std::vector<RecurrentRows>& runs, int turns, int count) override {
    convolve(convolved_, runs, turns);
    normalize_heads(convolved_, count, 1.0f / std::sqrt(static_cast<float>(mixer_.key_dim)));
    normalize_heads(convolved_ + mixer_.key_size(), count, 1.0f);
    in_turns<DeltaWork>(
        runs, turns, [this](std::vector<DeltaWork>& works, const RecurrentRows& rows) { works.push_back(rule_work(rows)); },
        [this](const DeltaWork* works, int of_turn) { pass_.backend().delta_rule(works, of_turn); });
  }

 private:
  void normalize_heads(float* first, int count, float scale) {
    const Vectors heads{first, channels_, mixer_.key_dim, count, mixer_.key_heads, mixer_.key_dim};
    pass_.backend().normalize({.out = heads, .in = heads, .weight = nullptr, .divisor = 1, .epsilon = kL2Epsilon, .scale = scale});
  }

  DeltaWork rule_work(const RecurrentRows& rows) const {
    const float* const first = convolved_ + rows.first_row * channels_;
    return {.out = out_ + rows.first_row * mixer_.value_size(),
            .out_stride = mixer_.value_size(),
            .queries = first,
            .keys = first + mixer_.key_size(),
            .values = first + 2 * mixer_.key_size(),
            .stride = channels_,
            .beta = rows.in + channels_,
            .decay = rows.in + channels_ + mixer_.value_heads,
            .gate_stride = row_floats_,
            .decay_log = weights_.vector(DenseRole::decay_log),
            .decay_bias = weights_.vector(DenseRole::decay_bias),
            .state = rows.state + (taps_ - 1) * channels_,
            .rows = rows.rows,
            .key_heads = mixer_.key_heads,
            .value_heads = mixer_.value_heads,
            .key_dim = mixer_.key_dim,
            .value_dim = mixer_.value_dim,
            .tiled_value_heads = mixer_.tiled_value_heads,
            .decay_is_rate = mixer_.decay_is_rate,
            .decay_by_channel = mixer_.decay_by_channel};
  }

  const DeltaMixer& mixer_;
  float* convolved_;
  float* out_;
};

class StateSpaceRecurrence final : public Recurrence {
 public:
  // convolved: rows x channels; out: rows x inner_size.
  StateSpaceRecurrence(PassState& pass, const DenseWeights& weights, const StateSpaceMixer& mixer, float* convolved, float* out)
      : Recurrence(pass, weights, mixer.row_floats(), mixer.channels(), mixer.taps, true),
        mixer_(mixer),
        convolved_(convolved),
        out_(out) {}

  void run(const std::vector<RecurrentRows>& runs, int turns, int) override {
    convolve(convolved_, runs, turns);
    in_turns<StateSpaceWork>(
        runs, turns, [this](std::vector<StateSpaceWork>& works, const RecurrentRows& rows) { works.push_back(rule_work(rows)); },
        [this](const StateSpaceWork* works, int of_turn) { pass_.backend().state_space(works, of_turn); });
  }

 private:
  StateSpaceWork rule_work(const RecurrentRows& rows) const {
    const float* const first = convolved_ + rows.first_row * channels_;
    return {.out = out_ + rows.first_row * mixer_.inner_size(),
            .out_stride = mixer_.inner_size(),
            .values = first,
            .inputs = first + mixer_.inner_size(),
            .reads = first + mixer_.inner_size() + mixer_.group_size(),
            .stride = channels_,
            .steps = rows.in + channels_,
            .step_stride = row_floats_,
            .decay_log = weights_.vector(DenseRole::decay_log),
            .step_bias = weights_.vector(DenseRole::decay_bias),
            .skip = weights_.vector(DenseRole::state_space_skip),
            .state = rows.state + (taps_ - 1) * channels_,
            .rows = rows.rows,
            .groups = mixer_.groups,
            .heads = mixer_.heads,
            .state_size = mixer_.state_size,
            .head_dim = mixer_.head_dim};
  }

  const StateSpaceMixer& mixer_;
  float* convolved_;
  float* out_;
};

class ShortConvolution final : public Recurrence {
 public:
  ShortConvolution(PassState& pass, const DenseWeights& weights, const ConvolutionMixer& mixer, float* out)
      : Recurrence(pass, weights, pass.hidden(), pass.hidden(), mixer.taps, false), out_(out) {}

  void run(const std::vector<RecurrentRows>& runs, int turns, int) override { convolve(out_, runs, turns); }

 private:
  float* out_;
};

// Runs rows [from, to) of the log through a state; the outputs are not used.
void replay(Recurrence& recurrence, RecurrenceLog& log, float* state, int from, int to) {
  for (int position = from; position < to;) {
    const int rows = std::min(to - position, RecurrenceLog::row_run(position));
    recurrence.run({{.in = log.row(position), .first_row = 0, .rows = rows, .turn = 0, .state = state}}, 1, rows);
    position += rows;
  }
}

// Moves the saved state as far as the positions that must stay undoable allow. A half-moved saved state is useless.
void advance_saved_state(Recurrence& recurrence, Sequence& sequence, int layer, int position) {
  RecurrenceLog& log = sequence.recurrence(layer);
  try {
    while (position - kTakenBackPositions - log.saved_position() >= kSavedStateStep) {
      replay(recurrence, log, log.saved_state(), log.saved_position(), log.saved_position() + kSavedStateStep);
      sequence.move_saved_state(layer);
    }
  } catch (...) {
    sequence.restart_recurrences();
    throw;
  }
}

// Brings the state to the one after all rows before `position`.
void restore_state(PassState& pass, Recurrence& recurrence, RecurrenceLog& log, int position) {
  if (log.state_position() == position) return;
  int from = log.state_position();
  log.set_state_position(RecurrenceLog::kUnknown);
  if (from < log.saved_position() || from > position) {
    from = log.saved_position();
    const auto floats = static_cast<int>(log.state_floats());
    if (floats > 0) pass.backend().copy_rows(log.state(), nullptr, log.saved_state(), nullptr, 1, floats);
  }
  replay(recurrence, log, log.state(), from, position);
  log.set_state_position(position);
}

// Stores rows in the log and runs them through the sequences' states. rows: in the log's layout, one behind another.
void run_rows(PassState& pass, Recurrence& recurrence, int layer, float* rows) {
  const int64_t size = recurrence.row_floats();
  std::vector<RecurrentRows> runs;
  for (const SequenceRun& run : pass.runs) {
    RecurrenceLog& log = run.sequence->recurrence(layer);
    float* const first = rows + run.first_row * size;
    for (int done = 0; done < run.rows;) {
      const int some = std::min(run.rows - done, RecurrenceLog::row_run(run.position + done));
      const auto floats = static_cast<int>(size);
      pass.backend().copy_vectors({log.row(run.position + done), size, 0, some, 1, floats},
                                  {first + done * size, size, 0, some, 1, floats});
      done += some;
    }
    log.set_state_position(RecurrenceLog::kUnknown);
    runs.push_back({.in = first, .first_row = run.first_row, .rows = run.rows, .turn = run.turn, .state = log.state()});
  }
  recurrence.run(runs, pass.turns, pass.count());
  for (const SequenceRun& run : pass.runs) run.sequence->recurrence(layer).set_state_position(run.position + run.rows);
}

// Runs before the pass's own rows, because both use the same scratch.
void prepare_states(PassState& pass, Recurrence& recurrence, int layer) {
  for (const SequenceRun& run : pass.runs) {
    if (run.turn > 0) continue;
    if (!run.sequence->recurrence(layer).holds(run.position, run.position + run.rows)) {
      throw Error(ErrorCode::internal,
                  "a sequence was cut back or forked, or another pass ran on it, while a pass was under way; begin anew");
    }
    advance_saved_state(recurrence, *run.sequence, layer, run.position);
    restore_state(pass, recurrence, run.sequence->recurrence(layer), run.position);
  }
}

// Rows in the log's layout, and the gates of the outputs. low: two low-rank forms of each row.
void project_delta(PassState& pass, const DeltaMixer& mixer, const DenseWeights& weights, float* rows, float* gates, float* low) {
  const int n = pass.count();
  const int64_t row = mixer.row_floats();
  const int64_t rank = mixer.low_rank;
  const bool has_low = rank > 0;
  float* const decays = rows + mixer.channels() + mixer.value_heads;
  float* const low_gates = low + n * rank;
  const auto product = [&](DenseRole role, float* to, int64_t stride) {
    return Product{to, stride, &weights.matrix(role), pass.normed.floats(), pass.hidden(), n};
  };
  const Product products[] = {
      product(DenseRole::delta_query, rows, row),
      product(DenseRole::delta_key, rows + mixer.key_size(), row),
      product(DenseRole::delta_value, rows + 2 * mixer.key_size(), row),
      product(DenseRole::delta_beta, rows + mixer.channels(), row),
      has_low ? product(DenseRole::delta_decay_low, low, rank) : product(DenseRole::delta_decay, decays, row),
      has_low ? product(DenseRole::delta_gate_low, low_gates, rank) : product(DenseRole::delta_gate, gates, mixer.value_size())};
  Backend& backend = pass.backend();
  backend.multiply(products, 6);
  if (has_low) {
    const Product raised[] = {{decays, row, &weights.matrix(DenseRole::delta_decay), low, rank, n},
                              {gates, mixer.value_size(), &weights.matrix(DenseRole::delta_gate), low_gates, rank, n}};
    backend.multiply(raised, 2);
  }
  if (!mixer.decay_by_channel) return;
  backend.channel_decay({.decays = {decays, row, mixer.key_dim, n, mixer.value_heads, mixer.key_dim},
                         .decay_log = weights.vector(DenseRole::decay_log),
                         .decay_bias = weights.vector(DenseRole::decay_bias),
                         .decay_is_rate = mixer.decay_is_rate,
                         .floor = mixer.decay_floor});
}

}  // namespace

const float* mix_delta(PassState& pass, const DeltaMixer& mixer, const DenseWeights& weights, int layer) {
  const int n = pass.count();
  const int64_t most = std::max(n, kSavedStateStep);
  Scratch scratch = pass.scratch();
  float* const rows = scratch.take(most * mixer.row_floats());
  float* const gates = scratch.take(n * mixer.value_size());
  float* const convolved = scratch.take(most * mixer.channels());
  float* const out = scratch.take(most * mixer.value_size());
  float* const low = scratch.take(int64_t{2} * n * mixer.low_rank);
  DeltaRecurrence recurrence(pass, weights, mixer, convolved, out);
  prepare_states(pass, recurrence, layer);
  project_delta(pass, mixer, weights, rows, gates, low);
  Backend& backend = pass.backend();
  run_rows(pass, recurrence, layer, rows);
  const Vectors heads{out, mixer.value_size(), mixer.value_dim, n, mixer.value_heads, mixer.value_dim};
  backend.normalize({.out = heads,
                     .in = heads,
                     .weight = weights.vector(DenseRole::delta_norm),
                     .divisor = static_cast<float>(mixer.value_dim),
                     .epsilon = mixer.norm_epsilon});
  backend.gate(heads, {gates, mixer.value_size(), mixer.value_dim, n, mixer.value_heads, mixer.value_dim}, mixer.gate);
  return out;
}

const float* mix_state_space(PassState& pass, const StateSpaceMixer& mixer, const DenseWeights& weights, int layer) {
  const int n = pass.count();
  const int64_t most = std::max(n, kSavedStateStep);
  const int64_t inner = mixer.inner_size();
  Scratch scratch = pass.scratch();
  float* const rows = scratch.take(most * mixer.row_floats());
  float* const gates = scratch.take(n * inner);
  float* const convolved = scratch.take(most * mixer.channels());
  float* const out = scratch.take(most * inner);
  StateSpaceRecurrence recurrence(pass, weights, mixer, convolved, out);
  prepare_states(pass, recurrence, layer);
  const auto product = [&](DenseRole role, float* to, int64_t stride) {
    return Product{to, stride, &weights.matrix(role), pass.normed.floats(), pass.hidden(), n};
  };
  const Product products[] = {product(DenseRole::state_space_input, rows, mixer.row_floats()),
                              product(DenseRole::state_space_gate, gates, inner)};
  Backend& backend = pass.backend();
  backend.multiply(products, 2);
  run_rows(pass, recurrence, layer, rows);
  const auto size = static_cast<int>(inner);
  backend.gate({out, inner, 0, n, 1, size}, {gates, inner, 0, n, 1, size}, Gate::silu);
  const auto part = static_cast<int>(inner / mixer.norm_groups);
  const Vectors parts{out, inner, part, n, mixer.norm_groups, part};
  backend.normalize({.out = parts,
                     .in = parts,
                     .weight = weights.vector(DenseRole::state_space_norm),
                     .divisor = static_cast<float>(part),
                     .epsilon = mixer.norm_epsilon,
                     .weight_stride = part});
  return out;
}

const float* mix_convolution(PassState& pass, const ConvolutionMixer& mixer, const DenseWeights& weights, int layer) {
  const int n = pass.count();
  const int64_t hidden = pass.hidden();
  const int64_t most = std::max(n, kSavedStateStep);
  Scratch scratch = pass.scratch();
  float* const input = scratch.take(n * 3 * hidden);
  float* const rows = scratch.take(most * hidden);
  float* const out = scratch.take(most * hidden);
  ShortConvolution recurrence(pass, weights, mixer, out);
  prepare_states(pass, recurrence, layer);
  Backend& backend = pass.backend();
  backend.matmul(input, 3 * hidden, weights.matrix(DenseRole::convolution_input), pass.normed.floats(), hidden, n);
  // [B | C | x]
  const auto part = [&](int index) { return Vectors{input + index * hidden, 3 * hidden, 0, n, 1, pass.hidden()}; };
  backend.multiply_elements(pass.rows_of(rows), part(0), part(2));
  run_rows(pass, recurrence, layer, rows);
  backend.multiply_elements(pass.rows_of(out), part(1), pass.rows_of(out));
  return out;
}

}  // namespace odmoe
