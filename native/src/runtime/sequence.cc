#include "odmoe/sequence.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "odmoe/arithmetic.h"
#include "odmoe/error.h"

namespace odmoe {

Sequence::Sequence(std::shared_ptr<Model> model)
    : model_(std::move(model)), layers_(static_cast<size_t>(model_->shape().layers)) {
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
    throw Error("INTERNAL", "layer " + std::to_string(layer) + " of a model of " + std::to_string(shape.layers));
  }
  if (position < 0 || rows < 0 || rows > shape.max_positions || position > shape.max_positions - rows) {
    throw Error("INTERNAL", std::to_string(rows) + " rows from position " + std::to_string(position) +
                                " do not lie within the model's " + std::to_string(shape.max_positions) + " positions");
  }
}

void Sequence::check_unused(const char* what) const {
  if (uses_.load() == 0) return;
  throw Error("INTERNAL", std::string(what) + " while a pass runs on the sequence; await the pass first");
}

int Sequence::length() const {
  const std::lock_guard lock(mutex_);
  int length = model_->shape().max_positions;
  for (const Layer& layer : layers_) length = std::min(length, layer.written);
  return length;
}

void Sequence::reserve_block(Layer& layer, size_t block) {
  if (!layer.blocks[block].memory.empty()) return;
  const std::shared_ptr<Backend>& backend = model_->device()->backend();
  Held held(backend, Holding::key_value_row, kAttentionChunk);
  layer.blocks[block] = {DeviceMemory(backend, float_bytes(2 * block_floats())), std::move(held)};
  layer.keys[block] = layer.blocks[block].memory.floats();
  layer.values[block] = layer.keys[block] + block_floats();
}

void Sequence::reserve(int end) {
  const std::lock_guard lock(mutex_);
  const auto blocks = static_cast<size_t>((end + kAttentionChunk - 1) / kAttentionChunk);
  std::vector<std::pair<Layer*, size_t>> reserved;
  try {
    for (Layer& layer : layers_) {
      for (size_t block = 0; block < blocks; block++) {
        if (!layer.blocks[block].memory.empty()) continue;
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
  if (length < 0) throw Error("INTERNAL", "a sequence cannot have a negative length");
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

void Sequence::read_key_values(int layer, int position, int rows, std::span<uint8_t> keys,
                               std::span<uint8_t> values) const {
  check_range(layer, position, rows);
  const ModelShape& shape = model_->shape();
  const uint64_t head_bytes = float_bytes(shape.head_dim);
  const uint64_t row_bytes = float_bytes(shape.kv_size());
  if (keys.size() != row_bytes * static_cast<uint64_t>(rows) || values.size() != keys.size()) {
    throw Error("INTERNAL", "the buffers for keys and values do not fit the rows");
  }
  const std::lock_guard lock(mutex_);
  const Layer& cached = layers_[static_cast<size_t>(layer)];
  if (position + rows > cached.written) {
    throw Error("INTERNAL", "positions up to " + std::to_string(position + rows) + " of layer " + std::to_string(layer) +
                                " asked for, " + std::to_string(cached.written) + " are written");
  }
  std::vector<uint8_t> run_rows(static_cast<size_t>(kAttentionChunk) * head_bytes);
  const auto copy = [&](const float* const* blocks, uint8_t* out) {
    for_each_run(position, rows, [&](size_t block, int in_block, int done, int run) {
      for (int head = 0; head < shape.kv_heads; head++) {
        const float* from = blocks[block] + (static_cast<int64_t>(head) * kAttentionChunk + in_block) * shape.head_dim;
        model_->backend().copy_to_host(run_rows.data(), from, static_cast<uint64_t>(run) * head_bytes);
        for (int i = 0; i < run; i++) {
          std::memcpy(out + static_cast<uint64_t>(done + i) * row_bytes + static_cast<uint64_t>(head) * head_bytes,
                      run_rows.data() + static_cast<uint64_t>(i) * head_bytes, head_bytes);
        }
      }
    });
  };
  copy(cached.keys.data(), keys.data());
  copy(cached.values.data(), values.data());
}

void Sequence::write_key_values(int layer, int position, int rows, std::span<const uint8_t> keys,
                                std::span<const uint8_t> values) {
  check_range(layer, position, rows);
  check_unused("rows written");
  const ModelShape& shape = model_->shape();
  const uint64_t head_bytes = float_bytes(shape.head_dim);
  const uint64_t row_bytes = float_bytes(shape.kv_size());
  if (keys.size() != row_bytes * static_cast<uint64_t>(rows) || values.size() != keys.size()) {
    throw Error("INTERNAL", "keys and values do not fit the rows");
  }
  const std::lock_guard lock(mutex_);
  Layer& cached = layers_[static_cast<size_t>(layer)];
  if (position > cached.written) {
    throw Error("INTERNAL", "rows from position " + std::to_string(position) + " of layer " + std::to_string(layer) +
                                " would leave a gap behind the " + std::to_string(cached.written) + " written");
  }
  for_each_run(position, rows, [&](size_t block, int, int, int) { reserve_block(cached, block); });
  std::vector<uint8_t> run_rows(static_cast<size_t>(kAttentionChunk) * head_bytes);
  const auto copy = [&](float* const* blocks, const uint8_t* in) {
    for_each_run(position, rows, [&](size_t block, int in_block, int done, int run) {
      for (int head = 0; head < shape.kv_heads; head++) {
        for (int i = 0; i < run; i++) {
          std::memcpy(run_rows.data() + static_cast<uint64_t>(i) * head_bytes,
                      in + static_cast<uint64_t>(done + i) * row_bytes + static_cast<uint64_t>(head) * head_bytes,
                      head_bytes);
        }
        float* to = blocks[block] + (static_cast<int64_t>(head) * kAttentionChunk + in_block) * shape.head_dim;
        model_->backend().copy_to_device(to, run_rows.data(), static_cast<uint64_t>(run) * head_bytes);
      }
    });
  };
  copy(cached.keys.data(), keys.data());
  copy(cached.values.data(), values.data());
  cached.written = std::max(cached.written, position + rows);
}

}  // namespace odmoe
