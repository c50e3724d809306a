#include "odmoe/sequence.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "odmoe/arithmetic.h"
#include "odmoe/error.h"

namespace odmoe {

Sequence::Sequence(std::shared_ptr<Model> model) : model_(std::move(model)), layers_(static_cast<size_t>(model_->shape().layers)) {
  const auto blocks = static_cast<size_t>((model_->shape().max_positions + kAttentionChunk - 1) / kAttentionChunk);
  for (Layer& layer : layers_) {
    layer.blocks.resize(blocks);
    layer.keys.resize(blocks);
    layer.values.resize(blocks);
  }
}

int64_t Sequence::block_floats() const { return model_->shape().kv_size() * kAttentionChunk; }

void Sequence::check_range(int layer, int position, int rows) const {
  const ModelShape& shape = model_->shape();
  if (layer < 0 || layer >= shape.layers) {
    throw Error(ErrorCode::internal, "layer " + std::to_string(layer) + " of a model of " + std::to_string(shape.layers));
  }
  if (position < 0 || rows < 0 || rows > shape.max_positions || position > shape.max_positions - rows) {
    throw Error(ErrorCode::internal, std::to_string(rows) + " rows from position " + std::to_string(position) +
                                         " do not lie within the model's " + std::to_string(shape.max_positions) + " positions");
  }
}

void Sequence::check_unused(const char* what) const {
  if (uses_.load() == 0) return;
  throw Error(ErrorCode::internal, std::string(what) + " while a pass runs on the sequence; await the pass first");
}

int Sequence::length() const {
  const std::lock_guard lock(mutex_);
  int length = model_->shape().max_positions;
  for (const Layer& layer : layers_) length = std::min(length, layer.written);
  return length;
}

void Sequence::reserve_block(Layer& layer, size_t block) {
  if (!layer.blocks[block].empty()) return;
  const std::shared_ptr<Backend>& backend = model_->device()->backend();
  layer.blocks[block] = DeviceMemory(backend, float_bytes(2 * block_floats()));
  layer.keys[block] = layer.blocks[block].floats();
  layer.values[block] = layer.keys[block] + block_floats();
}

void Sequence::reserve(int end) {
  const std::lock_guard lock(mutex_);
  const auto blocks = static_cast<size_t>((end + kAttentionChunk - 1) / kAttentionChunk);
  std::vector<std::pair<Layer*, size_t>> reserved;
  try {
    for (Layer& layer : layers_) {
      for (size_t block = 0; block < blocks; block++) {
        if (!layer.blocks[block].empty()) continue;
        reserve_block(layer, block);
        reserved.emplace_back(&layer, block);
      }
    }
  } catch (...) {
    for (const auto& [layer, block] : reserved) layer->blocks[block] = {};
    throw;
  }
}

void Sequence::written(int layer, int end) {
  const std::lock_guard lock(mutex_);
  int& written = layers_[static_cast<size_t>(layer)].written;
  written = std::max(written, end);
}

KeyValueLayer Sequence::cache(int layer) const {
  const Layer& cached = layers_[static_cast<size_t>(layer)];
  return {cached.keys.data(), cached.values.data()};
}

void Sequence::truncate(int length) {
  check_unused("truncated");
  if (length < 0) throw Error(ErrorCode::internal, "a sequence cannot have a negative length");
  const std::lock_guard lock(mutex_);
  for (Layer& layer : layers_) layer.written = std::min(layer.written, length);
}

template <typename Visit>
void Sequence::for_each_run(int position, int rows, Visit visit) const {
  for (int done = 0; done < rows;) {
    const int at = position + done;
    const int in_block = at % kAttentionChunk;
    const int run = std::min(rows - done, kAttentionChunk - in_block);
    visit(static_cast<size_t>(at / kAttentionChunk), in_block, done, run);
    done += run;
  }
}

std::vector<SpacedRows> Sequence::places(const Layer& layer, int position, int rows) const {
  const ModelShape& shape = model_->shape();
  const uint64_t head_bytes = float_bytes(shape.head_dim);
  std::vector<SpacedRows> places;
  for_each_run(position, rows, [&](size_t block, int in_block, int, int run) {
    // The values of a block lie behind its keys.
    places.push_back({.first = layer.keys[block] + static_cast<int64_t>(in_block) * shape.head_dim,
                      .count = 2 * shape.kv_heads,
                      .row_bytes = static_cast<uint64_t>(run) * head_bytes,
                      .pitch_bytes = kAttentionChunk * head_bytes});
  });
  return places;
}

template <typename Visit>
void Sequence::for_each_head(int position, int rows, Visit visit) const {
  const ModelShape& shape = model_->shape();
  for_each_run(position, rows, [&](size_t, int, int done, int run) {
    for (int head = 0; head < 2 * shape.kv_heads; head++) {
      for (int row = done; row < done + run; row++) {
        const int64_t heads_before = static_cast<int64_t>(row) * shape.kv_heads + head % shape.kv_heads;
        visit(head < shape.kv_heads, float_bytes(heads_before * shape.head_dim));
      }
    }
  });
}

void Sequence::read_key_values(int layer, int position, int rows, std::span<uint8_t> keys, std::span<uint8_t> values) const {
  check_range(layer, position, rows);
  const ModelShape& shape = model_->shape();
  const uint64_t head_bytes = float_bytes(shape.head_dim);
  const uint64_t row_bytes = float_bytes(shape.kv_size());
  if (keys.size() != row_bytes * static_cast<uint64_t>(rows) || values.size() != keys.size()) {
    throw Error(ErrorCode::internal, "the buffers for keys and values do not fit the rows");
  }
  const std::lock_guard lock(mutex_);
  const Layer& cached = layers_[static_cast<size_t>(layer)];
  if (position + rows > cached.written) {
    throw Error(ErrorCode::internal, "positions up to " + std::to_string(position + rows) + " of layer " + std::to_string(layer) +
                                         " asked for, " + std::to_string(cached.written) + " are written");
  }
  const auto gathered = std::make_unique_for_overwrite<uint8_t[]>(2 * keys.size());
  model_->backend().gather_to_host(gathered.get(), places(cached, position, rows));
  const uint8_t* from = gathered.get();
  for_each_head(position, rows, [&](bool is_key, uint64_t at) {
    std::memcpy((is_key ? keys : values).data() + at, from, head_bytes);
    from += head_bytes;
  });
}

void Sequence::write_key_values(int layer, int position, int rows, std::span<const uint8_t> keys, std::span<const uint8_t> values) {
  check_range(layer, position, rows);
  check_unused("rows written");
  const ModelShape& shape = model_->shape();
  const uint64_t head_bytes = float_bytes(shape.head_dim);
  const uint64_t row_bytes = float_bytes(shape.kv_size());
  if (keys.size() != row_bytes * static_cast<uint64_t>(rows) || values.size() != keys.size()) {
    throw Error(ErrorCode::internal, "keys and values do not fit the rows");
  }
  const std::lock_guard lock(mutex_);
  Layer& cached = layers_[static_cast<size_t>(layer)];
  if (position > cached.written) {
    throw Error(ErrorCode::internal, "rows from position " + std::to_string(position) + " of layer " + std::to_string(layer) +
                                         " would leave a gap behind the " + std::to_string(cached.written) + " written");
  }
  for_each_run(position, rows, [&](size_t block, int, int, int) { reserve_block(cached, block); });
  const auto scattered = std::make_unique_for_overwrite<uint8_t[]>(2 * keys.size());
  uint8_t* to = scattered.get();
  for_each_head(position, rows, [&](bool is_key, uint64_t at) {
    std::memcpy(to, (is_key ? keys : values).data() + at, head_bytes);
    to += head_bytes;
  });
  model_->backend().scatter_to_device(places(cached, position, rows), scattered.get());
  cached.written = std::max(cached.written, position + rows);
}

}  // namespace odmoe
