#include "odmoe/pass.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "odmoe/error.h"
#include "rope.h"

namespace odmoe {
Pass::Pass(std::shared_ptr<Model> model, int max_rows) : model_(std::move(model)), max_rows_(max_rows) {
  const ModelShape& shape = model_->shape();
  const auto floats = [&](int64_t rows, int64_t columns) {
    return DeviceMemory(model_->device()->backend(), float_bytes(rows * columns));
  };
  residual_ = floats(max_rows, shape.hidden_size);
  normed_ = floats(max_rows, shape.hidden_size);
  qkv_ = floats(max_rows, shape.qkv_size());
  attended_ = floats(max_rows, shape.query_size());
  projected_ = floats(max_rows, shape.hidden_size);
  cos_ = floats(max_rows, shape.head_dim / 2);
  sin_ = floats(max_rows, shape.head_dim / 2);
  router_logits_ = floats(max_rows, shape.experts);
  expert_outputs_ = floats(static_cast<int64_t>(max_rows) * shape.experts_per_token, shape.hidden_size);
  logits_ = floats(std::min(max_rows, kLogitRows), shape.vocab_size);
}

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

void Pass::check_rows(const PassRows& rows) const {
  const ModelShape& shape = model_->shape();
  const size_t n = rows.positions.size();
  if (n == 0 || n > static_cast<size_t>(max_rows_)) {
    throw Error(ErrorCode::internal, std::to_string(n) + " rows in a pass of 1 to " + std::to_string(max_rows_));
  }
  if (rows.row_sequence.size() != n || rows.token_ids.size() != n) {
    throw Error(ErrorCode::internal, "a pass needs a sequence, a position and a token for every row");
  }
  for (size_t i = 0; i < rows.sequences.size(); i++) {
    if (rows.sequences[i]->model() != model_.get()) throw Error(ErrorCode::internal, "a sequence of another model");
    if (std::count(rows.sequences.begin(), rows.sequences.end(), rows.sequences[i]) > 1) {
      throw Error(ErrorCode::internal, "a sequence is listed twice");
    }
  }
  constexpr int32_t kNone = -1;
  std::vector<int32_t> last(rows.sequences.size(), kNone);
  for (size_t i = 0; i < n; i++) {
    const int32_t sequence = rows.row_sequence[i];
    if (sequence < 0 || static_cast<size_t>(sequence) >= rows.sequences.size()) {
      throw Error(ErrorCode::internal, "row " + std::to_string(i) + " belongs to no sequence of the pass");
    }
    int32_t& before = last[static_cast<size_t>(sequence)];
    const int32_t position = rows.positions[i];
    const bool follows = before == kNone ? position >= 0 && position <= rows.sequences[static_cast<size_t>(sequence)]->length()
                                         : position == before + 1;
    if (!follows || position >= shape.max_positions) {
      throw Error(ErrorCode::internal, "row " + std::to_string(i) + " stands at position " + std::to_string(position) +
                                           "; rows of a sequence follow one another, at most right behind the positions written, " +
                                           "and within the model's " + std::to_string(shape.max_positions));
    }
    before = position;
    if (rows.token_ids[i] < 0 || rows.token_ids[i] >= shape.vocab_size) {
      throw Error(ErrorCode::internal,
                  "token id " + std::to_string(rows.token_ids[i]) + " in a vocabulary of " + std::to_string(shape.vocab_size));
    }
  }
}

void Pass::begin(PassRows rows) {
  stage_ = Stage::idle;
  check_rows(rows);
  const ModelShape& shape = model_->shape();
  const size_t half = static_cast<size_t>(shape.head_dim / 2);
  const size_t n = rows.positions.size();
  std::vector<float> cos(n * half);
  std::vector<float> sin(n * half);
  std::vector<int> ends(rows.sequences.size());
  for (size_t i = 0; i < n; i++) ends[static_cast<size_t>(rows.row_sequence[i])] = rows.positions[i] + 1;
  for (size_t i = 0; i < ends.size(); i++) rows.sequences[i]->reserve(ends[i]);
  for (size_t i = 0; i < n; i++) {
    rope_row(rows.positions[i], model_->inverse_frequencies(), &cos[i * half], &sin[i * half]);
  }
  backend().copy_to_device(cos_.floats(), cos.data(), cos.size() * sizeof(float));
  backend().copy_to_device(sin_.floats(), sin.data(), sin.size() * sizeof(float));
  backend().embed(residual_.floats(), model_->embedding(), rows.token_ids.data(), static_cast<int>(n));
  sequences_.assign(rows.sequences.begin(), rows.sequences.end());
  row_sequences_.resize(n);
  for (size_t i = 0; i < n; i++) row_sequences_[i] = rows.sequences[static_cast<size_t>(rows.row_sequence[i])].get();
  positions_ = std::move(rows.positions);
  attention_rows_.resize(n);
  layer_ = 0;
  stage_ = Stage::attend;
}

// Whatever fails after this leaves the pass idle.
void Pass::expect(Stage stage, int layer) {
  const Stage found = std::exchange(stage_, Stage::idle);
  if (found == stage && layer == layer_) return;
  throw Error(ErrorCode::internal,
              "a pass goes begin, then attend and combine for each layer in order (or forward), then logits; "
              "it was asked for something else at layer " +
                  std::to_string(layer));
}

void Pass::attention_block(int layer, const LayerWeights& weights) {
  const ModelShape& shape = model_->shape();
  const auto epsilon = static_cast<float>(shape.rms_norm_epsilon);
  const auto hidden = static_cast<int>(shape.hidden_size);
  const int n = count();
  float* const qkv = qkv_.floats();
  const AttentionShape attention{shape.heads, shape.kv_heads, shape.head_dim, shape.sliding_window};
  for (size_t i = 0; i < attention_rows_.size(); i++) attention_rows_[i] = {row_sequences_[i]->cache(layer), positions_[i]};
  backend().rms_norm(normed_.floats(), residual_.floats(), weights.attention_norm.floats(), n, hidden, epsilon);
  backend().matmul(qkv, shape.qkv_size(), weights.qkv.matrix, normed_.floats(), shape.hidden_size, n);
  backend().rope(qkv, shape.qkv_size(), cos_.floats(), sin_.floats(), n, shape.heads + shape.kv_heads, shape.head_dim);
  const float* const keys = qkv + shape.query_size();
  backend().store_and_attend(attended_.floats(), attention_rows_.data(), qkv, keys, keys + shape.kv_size(), shape.qkv_size(), n,
                             attention);
  backend().matmul(projected_.floats(), shape.hidden_size, weights.attention_output.matrix, attended_.floats(), shape.query_size(),
                   n);
  backend().add(residual_.floats(), projected_.floats(), n * shape.hidden_size);
  backend().rms_norm(normed_.floats(), residual_.floats(), weights.expert_norm.floats(), n, hidden, epsilon);
  for (size_t i = 0; i < row_sequences_.size(); i++) row_sequences_[i]->written(layer, positions_[i] + 1);
}

RouterChoice Pass::choose_experts(const LayerWeights& weights, std::span<uint8_t> hidden) {
  const ModelShape& shape = model_->shape();
  const int n = count();
  const size_t places = static_cast<size_t>(n) * static_cast<size_t>(shape.experts_per_token);
  RouterChoice choice{std::vector<int32_t>(places), std::vector<float>(places)};
  backend().matmul(router_logits_.floats(), shape.experts, weights.router.matrix, normed_.floats(), shape.hidden_size, n);
  backend().router(choice.experts.data(), choice.weights.data(), router_logits_.floats(), n, shape.experts, shape.experts_per_token,
                   shape.normalize_top_k, {hidden.data(), normed_.floats(), hidden.size()});
  return choice;
}

RouterChoice Pass::attend(int layer, std::span<uint8_t> hidden) {
  expect(Stage::attend, layer);
  if (hidden.size() != float_bytes(count() * model_->shape().hidden_size)) {
    throw Error(ErrorCode::internal, "the buffer for hidden states does not fit the pass's " + std::to_string(count()) + " rows");
  }
  const LayerWeights& weights = model_->layer(layer);
  attention_block(layer, weights);
  RouterChoice choice = choose_experts(weights, hidden);
  stage_ = Stage::combine;
  return choice;
}

void Pass::end_layer(int layer) {
  layer_ = layer + 1;
  stage_ = layer_ == model_->shape().layers ? Stage::done : Stage::attend;
}

void Pass::combine(int layer, std::span<const uint8_t> outputs, std::span<const float> weights) {
  expect(Stage::combine, layer);
  const ModelShape& shape = model_->shape();
  const size_t places = static_cast<size_t>(count()) * static_cast<size_t>(shape.experts_per_token);
  if (weights.size() != places || outputs.size() != float_bytes(static_cast<int64_t>(places) * shape.hidden_size)) {
    throw Error(ErrorCode::internal, "expert outputs or weights do not fit the pass's " + std::to_string(count()) + " rows");
  }
  backend().copy_to_device(expert_outputs_.floats(), outputs.data(), outputs.size());
  backend().combine(residual_.floats(), expert_outputs_.floats(), weights.data(), count(), shape.experts_per_token,
                    static_cast<int>(shape.hidden_size));
  end_layer(layer);
}

void Pass::forward(const std::function<void(int, const RouterChoice&)>& on_router) {
  expect(Stage::attend, 0);
  const ModelShape& shape = model_->shape();
  if (activations_.rows == 0) {
    const ExpertShape expert{shape.hidden_size, shape.intermediate_size, WeightFormat::fp32};
    activations_ = ExpertActivations(model_->device()->backend(), expert, max_rows_ * shape.experts_per_token);
  }
  for (int layer = 0; layer < shape.layers; layer++) {
    check_not_cancelled(layer);
    const LayerWeights& weights = model_->layer(layer);
    attention_block(layer, weights);
    const RouterChoice choice = choose_experts(weights, {});
    if (on_router) on_router(layer, choice);
    run_experts(layer, choice);
    backend().combine(residual_.floats(), expert_outputs_.floats(), choice.weights.data(), count(), shape.experts_per_token,
                      static_cast<int>(shape.hidden_size));
  }
  end_layer(shape.layers - 1);
}

void Pass::cancel() {
  if (forward_asked_) cancelled_ = true;
}

void Pass::check_not_cancelled(int layer) const {
  if (!cancelled_) return;
  throw Error(ErrorCode::cancelled, "the pass was cancelled in or before layer " + std::to_string(layer) + "; begin anew");
}

// Rows are grouped by expert, so that its weights are read once, and experts run together as far as the activations have room; where
// an output goes says only which row and rank it has.
void Pass::run_experts(int layer, const RouterChoice& choice) {
  std::vector<int32_t> places(choice.experts.size());
  std::iota(places.begin(), places.end(), 0);
  const auto expert_of = [&](int32_t place) { return choice.experts[static_cast<size_t>(place)]; };
  std::stable_sort(places.begin(), places.end(), [&](int32_t left, int32_t right) { return expert_of(left) < expert_of(right); });
  const auto most = static_cast<size_t>(activations_.rows);
  std::vector<ExpertRows> together;
  size_t begun = 0;  // places before it have been run
  for (size_t place = 0; place < places.size();) {
    const int32_t expert = expert_of(places[place]);
    size_t end = place + 1;
    while (end < places.size() && end - place < most && expert_of(places[end]) == expert) end++;
    if (end - begun > most) {
      run_places(std::span(places).subspan(begun, place - begun), together);
      together.clear();
      begun = place;
    }
    together.push_back({&model_->resident_expert(layer, expert), static_cast<int>(end - place)});
    place = end;
  }
  run_places(std::span(places).subspan(begun), together);
}

void Pass::run_places(std::span<const int32_t> places, std::span<const ExpertRows> experts) {
  const ModelShape& shape = model_->shape();
  const auto hidden = static_cast<int>(shape.hidden_size);
  const auto n = static_cast<int>(places.size());
  std::vector<int32_t> rows(places.size());
  for (size_t i = 0; i < places.size(); i++) rows[i] = places[i] / shape.experts_per_token;
  backend().copy_rows(activations_.input.floats(), nullptr, normed_.floats(), rows.data(), n, hidden);
  odmoe::run_experts(backend(), experts, activations_, activations_.output.floats(), activations_.input.floats());
  backend().copy_rows(expert_outputs_.floats(), places.data(), activations_.output.floats(), nullptr, n, hidden);
}

std::vector<float> Pass::logits(std::span<const int32_t> rows) {
  const ModelShape& shape = model_->shape();
  if (stage_ != Stage::done) throw Error(ErrorCode::internal, "logits before the last layer");
  for (const int32_t row : rows) {
    if (row < 0 || row >= count()) {
      throw Error(ErrorCode::internal, "logits of row " + std::to_string(row) + " of " + std::to_string(count()));
    }
  }
  const Matrix& lm_head = model_->lm_head();
  std::vector<float> result(rows.size() * static_cast<size_t>(shape.vocab_size));
  const auto tile = static_cast<size_t>(std::min(max_rows_, kLogitRows));
  for (size_t done = 0; done < rows.size(); done += tile) {
    const auto n = static_cast<int>(std::min(tile, rows.size() - done));
    backend().copy_rows(projected_.floats(), nullptr, residual_.floats(), rows.data() + done, n,
                        static_cast<int>(shape.hidden_size));
    backend().rms_norm(normed_.floats(), projected_.floats(), model_->final_norm(), n, static_cast<int>(shape.hidden_size),
                       static_cast<float>(shape.rms_norm_epsilon));
    backend().matmul(logits_.floats(), shape.vocab_size, lm_head, normed_.floats(), shape.hidden_size, n);
    backend().copy_to_host(result.data() + done * static_cast<size_t>(shape.vocab_size), logits_.floats(),
                           float_bytes(n * shape.vocab_size));
  }
  return result;
}

}  // namespace odmoe
