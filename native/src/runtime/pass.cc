#include "odmoe/pass.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "draft_rows.h"
#include "feed_forward.h"
#include "mixers.h"
#include "odmoe/error.h"
#include "pass_rows.h"
#include "pass_state.h"
#include "pools.h"
#include "query_scale.h"
#include "residual_streams.h"
#include "rope.h"

namespace odmoe {
namespace {

const LayerShape& layer_shape(const PassState& pass, int layer) { return pass.shape().layers[static_cast<size_t>(layer)]; }

void copy_angles(PassState& pass) {
  const size_t n = pass.positions.size();
  for (size_t i = 0; i < pass.shape().ropes.size(); i++) {
    const RopeShape& rope = pass.shape().ropes[i];
    const size_t pairs = rope.frequencies.size();
    std::vector<float> cos(n * pairs);
    std::vector<float> sin(n * pairs);
    for (size_t row = 0; row < n; row++) rope_row(pass.positions[row], rope, &cos[row * pairs], &sin[row * pairs]);
    const RopeAngles angles = pass.angles(static_cast<int>(i));
    pass.backend().copy_to_device(angles.cos, cos.data(), cos.size() * sizeof(float));
    pass.backend().copy_to_device(angles.sin, sin.data(), sin.size() * sizeof(float));
    if (angles.undoing_sin == nullptr) continue;
    for (float& value : sin) value = -value;
    pass.backend().copy_to_device(angles.undoing_sin, sin.data(), sin.size() * sizeof(float));
  }
}

void copy_query_factors(PassState& pass) {
  if (!pass.shape().query_scale) return;
  const std::vector<float> factors = query_factors(*pass.shape().query_scale, pass.positions);
  pass.queries_scaled = std::any_of(factors.begin(), factors.end(), [](float factor) { return factor != 1; });
  if (!pass.queries_scaled) return;
  std::vector<float> rows;
  rows.reserve(factors.size() * static_cast<size_t>(pass.query_floats));
  for (const float factor : factors) rows.insert(rows.end(), static_cast<size_t>(pass.query_floats), factor);
  pass.backend().copy_to_device(pass.query_factors.floats(), rows.data(), rows.size() * sizeof(float));
}

}  // namespace

Pass::Pass(std::shared_ptr<Model> model, int max_rows, RouterAnswer answer)
    : state_(std::make_unique<PassState>(std::move(model), max_rows, answer)) {}

Pass::~Pass() = default;

const std::shared_ptr<Model>& Pass::model() const { return state_->model; }

Pass::Call::Call(std::shared_ptr<Pass> pass, const std::vector<std::shared_ptr<Sequence>>& sequences) {
  if (pass->busy_.exchange(true)) throw Error(ErrorCode::internal, "a call of the pass is still running; await it first");
  pass_ = std::move(pass);
  for (const auto& sequence : sequences) uses_.emplace_back(sequence);
}

Pass::Call::Call(std::shared_ptr<Pass> pass, Kind kind) : Call(std::move(pass), std::vector<std::shared_ptr<Sequence>>{}) {
  for (const auto& sequence : pass_->sequences_) {
    std::shared_ptr<Sequence> alive = sequence.lock();
    if (alive == nullptr) throw Error(ErrorCode::internal, "a sequence of the pass has been disposed of; begin anew");
    uses_.emplace_back(std::move(alive));
  }
  if (kind == Kind::forward) {
    pass_->cancelled_ = false;
    pass_->forward_asked_ = true;
  }
}

Pass::Call::~Call() {
  uses_.clear();
  if (pass_ == nullptr) return;
  pass_->forward_asked_ = false;
  pass_->busy_ = false;
}

void Pass::begin(PassRows rows) {
  stage_ = Stage::idle;
  PassState& pass = *state_;
  check_rows(rows, *pass.model, pass.max_rows);
  std::vector<SequenceRun> runs = runs_of(rows);
  pass.turns = 0;
  pass.chosen_count = 0;
  for (const SequenceRun& run : runs) {
    // The sequence begins again.
    if (run.turn == 0 && run.position < run.sequence->oldest_position()) run.sequence->restart_recurrences();
    run.sequence->reserve(run.position, run.position + run.rows);
    pass.turns = std::max(pass.turns, run.turn + 1);
  }
  pass.runs = std::move(runs);
  const size_t n = rows.positions.size();
  sequences_.assign(rows.sequences.begin(), rows.sequences.end());
  pass.row_sequences.resize(n);
  for (size_t i = 0; i < n; i++) pass.row_sequences[i] = rows.sequences[static_cast<size_t>(rows.row_sequence[i])].get();
  pass.positions = std::move(rows.positions);
  pass.token_ids = std::move(rows.token_ids);
  pass.attention_rows.resize(n);
  copy_angles(pass);
  copy_query_factors(pass);
  begin_pools(pass);
  float* const residual = pass.residual.floats();
  pass.backend().embed(residual, pass.model->embedding(), pass.token_ids.data(), static_cast<int>(n));
  const float scale = pass.shape().embedding_scale;
  if (scale != 1) pass.backend().scale(residual, static_cast<int64_t>(n) * pass.hidden(), scale);
  if (pass.shape().draft_head) make_draft_rows(pass, rows.states);
  begin_streams(pass);
  begin_layer(0);
  expert_layer_ = 0;
  stage_ = Stage::attend;
}

// If anything fails after this, the pass is idle.
void Pass::expect(Stage stage, int layer) {
  const Stage found = std::exchange(stage_, Stage::idle);
  if (found == stage && layer == expert_layer_) return;
  throw Error(ErrorCode::internal,
              "a pass goes begin, then attend and combine for each expert layer in order (or forward), then logits; "
              "it was asked for something else at expert layer " +
                  std::to_string(layer));
}

void Pass::begin_layer(int layer) {
  layer_ = layer;
  take_streams(*state_, layer, StreamPart::mixer);
}

void Pass::run_dense_layers(int end) {
  PassState& pass = *state_;
  for (; layer_ < end; begin_layer(layer_ + 1)) {
    check_not_cancelled(layer_);
    const LayerShape& shape = layer_shape(pass, layer_);
    const DenseWeights& weights = pass.model->layer(layer_);
    run_mixer(pass, layer_, weights);
    if (!shape.has_feed_forward()) continue;
    prepare_feed_forward(pass, shape, weights);
    odmoe::run_always(pass, shape, weights);
    add_feed_forward(pass, shape, weights, {});
  }
}

RouterChoice Pass::begin_expert_layer(int layer, std::span<uint8_t> hidden) {
  PassState& pass = *state_;
  run_dense_layers(pass.model->layer_of_expert_layer(layer));
  check_not_cancelled(layer_);
  const LayerShape& shape = layer_shape(pass, layer_);
  const DenseWeights& weights = pass.model->layer(layer_);
  run_mixer(pass, layer_, weights);
  prepare_feed_forward(pass, shape, weights);
  pass.always_done = !shape.always;
  pass.always_error = nullptr;
  return choose_experts(pass, shape, weights, hidden);
}

void Pass::end_expert_layer(int layer, std::span<const float> weights) {
  PassState& pass = *state_;
  add_feed_forward(pass, layer_shape(pass, layer_), pass.model->layer(layer_), weights);
  begin_layer(layer_ + 1);
  expert_layer_ = layer + 1;
  if (expert_layer_ == pass.shape().expert_layers) run_dense_layers(static_cast<int>(pass.shape().layers.size()));
}

RouterChoice Pass::attend(int layer, std::span<uint8_t> hidden) {
  expect(Stage::attend, layer);
  if (hidden.size() != float_bytes(int64_t{state_->count()} * state_->expert_row())) {
    throw Error(ErrorCode::internal,
                "the buffer for hidden states does not fit the pass's " + std::to_string(state_->count()) + " rows");
  }
  RouterChoice choice = begin_expert_layer(layer, hidden);
  stage_ = Stage::combine;
  return choice;
}

RouterChoice Pass::choose_ahead(int layer) {
  PassState& pass = *state_;
  if (stage_ != Stage::combine || layer <= expert_layer_ || layer >= pass.shape().expert_layers) {
    throw Error(ErrorCode::internal, "the router of expert layer " + std::to_string(layer) +
                                         " was asked ahead; between attend and combine those of later layers can be");
  }
  const int of_all = pass.model->layer_of_expert_layer(layer);
  return odmoe::choose_ahead(pass, layer_shape(pass, of_all), pass.model->layer(of_all));
}

bool Pass::has_always(int layer) const {
  if (layer < 0 || layer >= state_->shape().expert_layers) return false;
  return layer_shape(*state_, state_->model->layer_of_expert_layer(layer)).always.has_value();
}

void Pass::run_always(int layer) {
  PassState& pass = *state_;
  if (stage_ != Stage::combine || layer != expert_layer_ || pass.always_done) return;
  pass.always_done = true;
  try {
    odmoe::run_always(pass, layer_shape(pass, layer_), pass.model->layer(layer_));
  } catch (...) {
    pass.always_error = std::current_exception();
  }
}

void Pass::combine(int layer, std::span<const uint8_t> outputs, std::span<const float> weights) {
  run_always(layer);
  expect(Stage::combine, layer);
  PassState& pass = *state_;
  if (pass.always_error != nullptr) std::rethrow_exception(pass.always_error);
  const size_t places = static_cast<size_t>(pass.count()) * static_cast<size_t>(pass.shape().experts_per_token);
  if (weights.size() != places || outputs.size() != float_bytes(static_cast<int64_t>(places) * pass.expert_row())) {
    throw Error(ErrorCode::internal, "expert outputs or weights do not fit the pass's " + std::to_string(pass.count()) + " rows");
  }
  pass.backend().copy_to_device(pass.expert_outputs.floats(), outputs.data(), outputs.size());
  end_expert_layer(layer, weights);
  stage_ = expert_layer_ == pass.shape().expert_layers ? Stage::done : Stage::attend;
}

void Pass::residual(std::span<float> states) const {
  PassState& pass = *state_;
  if (stage_ != Stage::attend && stage_ != Stage::done) {
    throw Error(ErrorCode::internal, "the residual stream was asked for, which a pass has ready after begin and after combine");
  }
  if (states.size() != static_cast<size_t>(pass.count()) * static_cast<size_t>(pass.hidden())) {
    throw Error(ErrorCode::internal,
                "the array for the residual stream does not fit the pass's " + std::to_string(pass.count()) + " rows");
  }
  pass.backend().copy_to_host(states.data(), pass.residual.floats(), states.size_bytes());
}

void Pass::forward(const std::function<void(int, const RouterChoice&)>& on_router) {
  expect(Stage::attend, 0);
  PassState& pass = *state_;
  if (pass.activations.rows == 0 && pass.shape().expert_layers > 0) {
    const ExpertShape expert{pass.expert_row(), pass.shape().expert, WeightFormat::fp32};
    pass.activations = ExpertActivations(pass.model->device()->backend(), expert, pass.max_rows * pass.shape().experts_per_token);
  }
  for (int layer = 0; layer < pass.shape().expert_layers; layer++) {
    const RouterChoice choice = begin_expert_layer(layer, {});
    if (on_router) on_router(layer, choice);
    odmoe::run_always(pass, layer_shape(pass, layer_), pass.model->layer(layer_));
    run_experts(layer, choice);
    end_expert_layer(layer, choice.weights);
  }
  // A head that drafts may have no layer with experts.
  if (pass.shape().expert_layers == 0) run_dense_layers(static_cast<int>(pass.shape().layers.size()));
  stage_ = Stage::done;
}

void Pass::cancel() {
  if (forward_asked_) cancelled_ = true;
}

void Pass::check_not_cancelled(int layer) const {
  if (!forward_asked_ || !cancelled_) return;
  throw Error(ErrorCode::cancelled, "the pass was cancelled in or before layer " + std::to_string(layer) + "; begin anew");
}

// Rows are grouped by expert, so that its weights are read once, and experts run together as far as the activations have room; the
// place of an output depends only on its row and rank.
void Pass::run_experts(int layer, const RouterChoice& choice) {
  std::vector<int32_t> places(choice.experts.size());
  std::iota(places.begin(), places.end(), 0);
  const auto expert_of = [&](int32_t place) { return choice.experts[static_cast<size_t>(place)]; };
  std::stable_sort(places.begin(), places.end(), [&](int32_t left, int32_t right) { return expert_of(left) < expert_of(right); });
  const float* const in = expert_input(*state_, layer_shape(*state_, layer_));
  const auto most = static_cast<size_t>(state_->activations.rows);
  std::vector<ExpertRows> together;
  size_t begun = 0;  // places before this one have been run
  for (size_t place = 0; place < places.size();) {
    const int32_t expert = expert_of(places[place]);
    size_t end = place + 1;
    while (end < places.size() && end - place < most && expert_of(places[end]) == expert) end++;
    if (end - begun > most) {
      run_places(std::span(places).subspan(begun, place - begun), together, in);
      together.clear();
      begun = place;
    }
    together.push_back({&state_->model->resident_expert(layer, expert), static_cast<int>(end - place)});
    place = end;
  }
  run_places(std::span(places).subspan(begun), together, in);
}

void Pass::run_places(std::span<const int32_t> places, std::span<const ExpertRows> experts, const float* in) {
  PassState& pass = *state_;
  const int size = pass.expert_row();
  const auto n = static_cast<int>(places.size());
  std::vector<int32_t> rows(places.size());
  for (size_t i = 0; i < places.size(); i++) rows[i] = places[i] / pass.shape().experts_per_token;
  const ExpertActivations& activations = pass.activations;
  pass.backend().copy_rows(activations.input.floats(), nullptr, in, rows.data(), n, size);
  odmoe::run_experts(pass.backend(), expert_glu(pass.shape(), layer_shape(pass, layer_)), experts, activations,
                     activations.output.floats(), activations.input.floats());
  pass.backend().copy_rows(pass.expert_outputs.floats(), places.data(), activations.output.floats(), nullptr, n, size);
}

void Pass::check_last_rows(std::span<const int32_t> rows) const {
  if (stage_ != Stage::done) throw Error(ErrorCode::internal, "logits or last states before the last layer");
  for (const int32_t row : rows) {
    if (row >= 0 && row < state_->count()) continue;
    throw Error(ErrorCode::internal, "row " + std::to_string(row) + " of " + std::to_string(state_->count()) + " was asked for");
  }
}

std::vector<float> Pass::states(std::span<const int32_t> rows, bool normed) {
  check_last_rows(rows);
  PassState& pass = *state_;
  const DenseWeights& ending = pass.model->ending();
  const auto hidden = static_cast<size_t>(pass.hidden());
  std::vector<float> result(rows.size() * hidden);
  const auto tile = static_cast<size_t>(pass.max_rows);
  for (size_t done = 0; done < rows.size(); done += tile) {
    const auto n = static_cast<int>(std::min(tile, rows.size() - done));
    float* found = pass.branch.floats();
    pass.backend().copy_rows(found, nullptr, pass.residual.floats(), rows.data() + done, n, pass.hidden());
    if (normed) {
      normalize_hidden(pass, pass.normed.floats(), found, n, ending.vector(DenseRole::final_norm),
                       ending.vector(DenseRole::final_norm_bias));
      found = pass.normed.floats();
    }
    pass.backend().copy_to_host(result.data() + done * hidden, found, float_bytes(int64_t{n} * pass.hidden()));
  }
  return result;
}

std::vector<float> Pass::logits(std::span<const int32_t> rows) {
  check_last_rows(rows);
  PassState& pass = *state_;
  const ModelShape& shape = pass.shape();
  Backend& backend = pass.backend();
  const Matrix& lm_head = pass.model->lm_head();
  const DenseWeights& ending = pass.model->ending();
  const float* const bias = ending.vector(DenseRole::lm_head_bias);
  float* const logits = pass.logits.floats();
  std::vector<float> result(rows.size() * static_cast<size_t>(shape.vocab_size));
  const auto tile = static_cast<size_t>(std::min(pass.max_rows, kLogitRows));
  for (size_t done = 0; done < rows.size(); done += tile) {
    const auto n = static_cast<int>(std::min(tile, rows.size() - done));
    backend.copy_rows(pass.branch.floats(), nullptr, pass.residual.floats(), rows.data() + done, n, pass.hidden());
    normalize_hidden(pass, pass.normed.floats(), pass.branch.floats(), n, ending.vector(DenseRole::final_norm),
                     ending.vector(DenseRole::final_norm_bias));
    backend.matmul(logits, shape.vocab_size, lm_head, pass.normed.floats(), shape.hidden_size, n);
    if (bias != nullptr) backend.add_bias({logits, shape.vocab_size, 0, n, 1, static_cast<int>(shape.vocab_size)}, bias);
    if (shape.logit_divisor != 1 || shape.logit_cap != 0) {
      backend.cap_logits(logits, n * shape.vocab_size, shape.logit_divisor, shape.logit_cap);
    }
    backend.copy_to_host(result.data() + done * static_cast<size_t>(shape.vocab_size), logits, float_bytes(n * shape.vocab_size));
  }
  return result;
}

}  // namespace odmoe
