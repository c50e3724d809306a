#include "odmoe/sequence.h"

#include <algorithm>
#include <string>
#include <utility>

#include "odmoe/error.h"

namespace odmoe {

Sequence::Sequence(std::shared_ptr<Model> model) : model_(std::move(model)) {
  const ModelShape& shape = model_->shape();
  const std::shared_ptr<SequenceMemory>& memory = model_->sequence_memory();
  layers_.reserve(shape.layers.size());
  for (const LayerShape& layer : shape.layers) {
    if (const auto* attention = std::get_if<AttentionMixer>(&layer.mixer)) {
      layers_.emplace_back(KeyValueCache(memory, *attention, shape.max_positions));
    } else if (const auto* latent = std::get_if<LatentMixer>(&layer.mixer)) {
      layers_.emplace_back(KeyValueCache(memory, *latent, shape.max_positions));
    } else if (const auto* pooled = std::get_if<PooledMixer>(&layer.mixer)) {
      layers_.emplace_back(KeyValueCache(memory, *pooled, shape.max_positions));
    } else if (const auto* delta = std::get_if<DeltaMixer>(&layer.mixer)) {
      layers_.emplace_back(RecurrenceLog(memory, *delta));
    } else if (const auto* space = std::get_if<StateSpaceMixer>(&layer.mixer)) {
      layers_.emplace_back(RecurrenceLog(memory, *space));
    } else {
      layers_.emplace_back(RecurrenceLog(memory, std::get<ConvolutionMixer>(layer.mixer), shape.hidden_size));
    }
  }
}

Sequence::Sequence(std::shared_ptr<Model> model, std::vector<Layer> layers)
    : model_(std::move(model)), layers_(std::move(layers)) {}

int Sequence::written_of(const Layer& layer) {
  return std::visit([](const auto& kept) { return kept.written(); }, layer);
}

int Sequence::oldest_of(const Layer& layer) {
  const auto* const log = std::get_if<RecurrenceLog>(&layer);
  return log == nullptr ? 0 : log->saved_position();
}

void Sequence::check_not_older(const Layer& layer, int number, int position) {
  if (position >= oldest_of(layer)) return;
  throw Error(ErrorCode::internal, "position " + std::to_string(position) + " of recurrent layer " + std::to_string(number) +
                                       ", which keeps rows from " + std::to_string(oldest_of(layer)) + " on");
}

uint64_t Sequence::row_bytes(int layer, int position, int rows) const {
  const ModelShape& shape = model_->shape();
  if (layer < 0 || static_cast<size_t>(layer) >= layers_.size()) {
    throw Error(ErrorCode::internal, "layer " + std::to_string(layer) + " of a model of " + std::to_string(layers_.size()));
  }
  if (position < 0 || rows < 0 || rows > shape.max_positions || position > shape.max_positions - rows) {
    throw Error(ErrorCode::internal, std::to_string(rows) + " rows from position " + std::to_string(position) +
                                         " do not lie within the model's " + std::to_string(shape.max_positions) + " positions");
  }
  const Layer& kept = layers_[static_cast<size_t>(layer)];
  return float_bytes(rows * std::visit([](const auto& one) { return one.row_floats(); }, kept));
}

void Sequence::check_unused(const char* what) const {
  if (uses_.load() == 0) return;
  throw Error(ErrorCode::internal, std::string(what) + " while a pass runs on the sequence; await the pass first");
}

int Sequence::length() const {
  const std::lock_guard lock(mutex_);
  int length = model_->shape().max_positions;
  for (const Layer& layer : layers_) length = std::min(length, written_of(layer));
  return length;
}

int Sequence::oldest_position() const {
  const std::lock_guard lock(mutex_);
  int oldest = 0;
  for (const Layer& layer : layers_) oldest = std::max(oldest, oldest_of(layer));
  return oldest;
}

std::shared_ptr<Sequence> Sequence::fork(int length) const {
  check_unused("forked");
  check_kept("forked at", length);
  if (length > this->length()) {
    throw Error(ErrorCode::internal,
                "a sequence of " + std::to_string(this->length()) + " positions cannot be forked at " + std::to_string(length));
  }
  const std::lock_guard lock(mutex_);
  std::vector<Layer> layers;
  layers.reserve(layers_.size());
  for (const Layer& layer : layers_) {
    layers.push_back(std::visit([length](const auto& kept) { return Layer(kept.fork(length)); }, layer));
  }
  return std::shared_ptr<Sequence>(new Sequence(model_, std::move(layers)));
}

void Sequence::reserve(int position, int end) {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<Layer*, std::vector<ReplacedPiece>>> reserved;
  reserved.reserve(layers_.size());
  try {
    for (Layer& layer : layers_) {
      reserved.emplace_back(&layer, std::visit([&](auto& kept) { return kept.reserve(position, end); }, layer));
    }
  } catch (...) {
    for (auto& [layer, replaced] : reserved) std::visit([&replaced](auto& kept) { kept.put_back(replaced); }, *layer);
    throw;
  }
}

uint64_t Sequence::bytes_to_write(int position, int end) const {
  if (position < 0 || end < position || end > model_->shape().max_positions) {
    throw Error(ErrorCode::internal, "positions " + std::to_string(position) + " to " + std::to_string(end) +
                                         " do not lie within the model's " + std::to_string(model_->shape().max_positions));
  }
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const Layer& layer : layers_) {
    bytes += std::visit([&](const auto& kept) { return kept.bytes_to_write(position, end); }, layer);
  }
  return bytes;
}

void Sequence::check_own_cache(int layer, int position, int end) const {
  const std::lock_guard lock(mutex_);
  if (std::get<KeyValueCache>(layers_[static_cast<size_t>(layer)]).owns(position, end)) return;
  throw Error(ErrorCode::internal, "a sequence was forked while a pass was under way; begin anew");
}

void Sequence::written(int layer, int end) {
  const std::lock_guard lock(mutex_);
  std::visit([end](auto& kept) { kept.set_written(std::max(kept.written(), end)); }, layers_[static_cast<size_t>(layer)]);
}

void Sequence::move_saved_state(int layer) {
  const std::lock_guard lock(mutex_);
  recurrence(layer).move_saved_state();
}

void Sequence::restart_recurrences() {
  const std::lock_guard lock(mutex_);
  for (Layer& layer : layers_) {
    if (auto* log = std::get_if<RecurrenceLog>(&layer)) log->truncate(0);
  }
}

void Sequence::check_kept(const char* what, int length) const {
  if (length < 0) throw Error(ErrorCode::internal, "a sequence cannot have a negative length");
  const int oldest = oldest_position();
  if (length == 0 || length >= oldest) return;
  throw Error(ErrorCode::internal, std::string("a sequence cannot be ") + what + " " + std::to_string(length) +
                                       " positions; its recurrent layers go back to " + std::to_string(oldest) +
                                       ", or to the start");
}

void Sequence::truncate(int length) {
  check_unused("truncated");
  check_kept("cut back to", length);
  const std::lock_guard lock(mutex_);
  for (Layer& layer : layers_) {
    if (auto* log = std::get_if<RecurrenceLog>(&layer)) {
      log->truncate(length);
    } else {
      auto& cache = std::get<KeyValueCache>(layer);
      cache.set_written(std::min(cache.written(), length));
    }
  }
}

void Sequence::read_rows(int layer, int position, int rows, std::span<uint8_t> out) const {
  if (out.size() != row_bytes(layer, position, rows)) throw Error(ErrorCode::internal, "the buffer does not fit the rows");
  const std::lock_guard lock(mutex_);
  const Layer& kept = layers_[static_cast<size_t>(layer)];
  if (position + rows > written_of(kept)) {
    throw Error(ErrorCode::internal, "positions up to " + std::to_string(position + rows) + " of layer " + std::to_string(layer) +
                                         " asked for, " + std::to_string(written_of(kept)) + " are written");
  }
  check_not_older(kept, layer, position);
  std::visit([&](const auto& one) { one.read(position, rows, out); }, kept);
}

void Sequence::write_rows(int layer, int position, int rows, std::span<const uint8_t> in) {
  if (in.size() != row_bytes(layer, position, rows)) throw Error(ErrorCode::internal, "the values do not fit the rows");
  check_unused("rows written");
  const std::lock_guard lock(mutex_);
  Layer& kept = layers_[static_cast<size_t>(layer)];
  if (position > written_of(kept)) {
    throw Error(ErrorCode::internal, "rows from position " + std::to_string(position) + " of layer " + std::to_string(layer) +
                                         " would leave a gap behind the " + std::to_string(written_of(kept)) + " written");
  }
  check_not_older(kept, layer, position);
  std::visit(
      [&](auto& one) {
        one.reserve(position, position + rows);
        one.write(position, rows, in);
        one.set_written(std::max(one.written(), position + rows));
      },
      kept);
}

}  // namespace odmoe
