#include "key_values.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <string>
#include <vector>

#include "native_tests.h"
#include "odmoe/arithmetic.h"
#include "odmoe/sequence.h"

namespace odmoe::test {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr int kLayers = 2;

// Random bits, also those of NaN.
Bytes random_bytes(std::mt19937& random, size_t count) {
  Bytes bytes(count + sizeof(uint32_t));
  for (size_t i = 0; i < count; i += sizeof(uint32_t)) {
    const auto drawn = static_cast<uint32_t>(random());
    std::memcpy(&bytes[i], &drawn, sizeof drawn);
  }
  bytes.resize(count);
  return bytes;
}

int drawn(std::mt19937& random, int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); }

// Pieces one behind the other in `bytes` bytes of memory, with gaps.
std::vector<SpacedRows> drawn_pieces(std::mt19937& random, uint8_t* memory, size_t bytes, int most_rows, int most_row_bytes) {
  std::vector<SpacedRows> pieces;
  for (size_t at = 0;;) {
    SpacedRows rows;
    rows.count = drawn(random, 0, most_rows);
    rows.row_bytes = static_cast<uint64_t>(drawn(random, 0, most_row_bytes));
    rows.pitch_bytes = rows.row_bytes + static_cast<uint64_t>(drawn(random, 0, 1) * drawn(random, 0, most_row_bytes));
    at += static_cast<size_t>(drawn(random, 0, 100));
    rows.first = memory + at;
    at += static_cast<size_t>(rows.count) * rows.pitch_bytes;
    if (at > bytes) return pieces;
    pieces.push_back(rows);
  }
}

uint64_t bytes_of(const std::vector<SpacedRows>& pieces) {
  uint64_t bytes = 0;
  for (const SpacedRows& rows : pieces) bytes += static_cast<uint64_t>(rows.count) * rows.row_bytes;
  return bytes;
}

// Calls visit(offset of a row in the memory, its offset on the host, its bytes).
template <typename Visit>
void for_each_row(const std::vector<SpacedRows>& pieces, const uint8_t* memory, Visit visit) {
  size_t host = 0;
  for (const SpacedRows& rows : pieces) {
    for (int64_t i = 0; i < rows.count; i++, host += rows.row_bytes) {
      visit(static_cast<size_t>(static_cast<uint8_t*>(rows.first) - memory) + static_cast<size_t>(i) * rows.pitch_bytes, host,
            rows.row_bytes);
    }
  }
}

void check_pieces(Backend& backend, const DeviceMemory& memory, const std::vector<SpacedRows>& pieces, std::mt19937& random) {
  const Bytes before = random_bytes(random, memory.buffer().bytes);
  backend.copy_to_device(memory.bytes(), before.data(), before.size());
  Bytes gathered(bytes_of(pieces) + 1, 77);
  backend.gather_to_host(gathered.data(), pieces);
  for_each_row(pieces, memory.bytes(), [&](size_t at, size_t host, size_t bytes) {
    check(std::memcmp(&gathered[host], &before[at], bytes) == 0, "gathered rows are others");
  });
  check(gathered.back() == 77, "more is gathered than the rows");
  Bytes expected = before;
  Bytes scattered = random_bytes(random, bytes_of(pieces) + 1);
  for_each_row(pieces, memory.bytes(),
               [&](size_t at, size_t host, size_t bytes) { std::copy_n(&scattered[host], bytes, &expected[at]); });
  backend.scatter_to_device(pieces, scattered.data());
  // The caller may reuse the host's memory.
  std::fill(scattered.begin(), scattered.end(), uint8_t{0});
  Bytes after(before.size());
  backend.copy_to_host(after.data(), memory.bytes(), after.size());
  check(after == expected, "scattered rows, or what stands between them, are others");
}

// The only mixer of a layer in these models, and the size of its cache row.
struct Cached {
  MixerShape mixer;
  AttentionShape attention;

  int64_t key_floats() const { return int64_t{attention.kv_heads} * attention.head_dim; }
  int64_t value_floats() const { return attention.values_in_keys ? 0 : int64_t{attention.kv_heads} * attention.value_dim; }
  int64_t row_floats() const { return key_floats() + value_floats(); }
};

// value_dim 0: head_dim.
Cached attention_of(int kv_heads, int head_dim, int value_dim = 0) {
  AttentionMixer mixer;
  mixer.heads = mixer.kv_heads = kv_heads;
  mixer.head_dim = head_dim;
  mixer.value_dim = value_dim;
  AttentionShape attention;
  attention.heads = attention.kv_heads = kv_heads;
  attention.head_dim = head_dim;
  attention.value_dim = mixer.value_head();
  return {mixer, attention};
}

Cached latent_of(int latent_size, int rope_size) {
  LatentMixer mixer;
  mixer.heads = 2;
  mixer.latent_size = latent_size;
  mixer.rope_size = rope_size;
  AttentionShape attention;
  attention.heads = 2;
  attention.kv_heads = 1;
  attention.head_dim = latent_size + rope_size;
  attention.value_dim = latent_size;
  attention.values_in_keys = true;
  return {mixer, attention};
}

// A sequence, and its expected contents.
class Mirrored {
 public:
  Mirrored(const std::shared_ptr<Model>& model, const Cached& cached, std::mt19937& random)
      : random_(random()),
        cached_(cached),
        row_bytes_(float_bytes(cached.row_floats())),
        sequence_(std::make_shared<Sequence>(model)) {}

  Mirrored fork(int length) {
    Mirrored fork = *this;
    fork.random_.seed(static_cast<uint32_t>(random_()));
    fork.sequence_ = sequence_->fork(length);
    for (Bytes& held : fork.held_) held.resize(static_cast<size_t>(length) * row_bytes_);
    return fork;
  }

  void truncate(int length) {
    sequence_->truncate(length);
    for (Bytes& held : held_) held.resize(std::min(held.size(), static_cast<size_t>(length) * row_bytes_));
  }

  Sequence& sequence() const { return *sequence_; }
  int written(int layer) const { return static_cast<int>(held_[layer].size() / row_bytes_); }

  void write(int layer, int position, int rows) {
    Bytes some = random_bytes(random_, rows * row_bytes_);
    sequence_->write_rows(layer, position, rows, some);
    put(layer, position, some);
    // The caller may reuse the host's memory.
    std::fill(some.begin(), some.end(), uint8_t{0});
  }

  // Stores rows of keys and values as a pass does; the stride has some more floats that belong to other data.
  void store(int layer, int position, int rows) {
    const auto& backend = sequence_->model()->device()->backend();
    sequence_->reserve(position, position + rows);
    const Bytes some = random_bytes(random_, rows * row_bytes_);
    put(layer, position, some);
    const int64_t stride = cached_.row_floats() + 3;
    Bytes spread = random_bytes(random_, float_bytes(rows * stride));
    for (int i = 0; i < rows; i++) std::copy_n(&some[i * row_bytes_], row_bytes_, &spread[float_bytes(i * stride)]);
    const DeviceMemory keys(backend, spread.size());
    backend->copy_to_device(keys.bytes(), spread.data(), spread.size());
    std::vector<AttentionRow> cached;
    for (int i = 0; i < rows; i++) cached.push_back({sequence_->cache(layer), position + i});
    backend->store_key_values(cached.data(), keys.floats(), keys.floats() + cached_.key_floats(), stride, rows, cached_.attention);
    sequence_->written(layer, position + rows);
  }

  void write_or_store_any(int layer, int most_rows) {
    const int position = drawn(random_, std::max(0, written(layer) - most_rows), written(layer));
    const int rows = drawn(random_, 0, std::min(most_rows, sequence_->model()->shape().max_positions - position));
    if (rows > 0 && drawn(random_, 0, 2) == 0) {
      store(layer, position, rows);
    } else {
      write(layer, position, rows);
    }
  }

  void check_read(int layer, int position, int rows) {
    Bytes read(rows * row_bytes_);
    sequence_->read_rows(layer, position, rows, read);
    const auto begin = held_[layer].begin() + static_cast<ptrdiff_t>(static_cast<size_t>(position) * row_bytes_);
    check(std::equal(read.begin(), read.end(), begin),
          std::to_string(cached_.attention.kv_heads) + " heads of " + std::to_string(cached_.attention.head_dim) +
              ": rows that are read from position " + std::to_string(position) + " on are others, of " + std::to_string(rows));
  }

  void check_read_any(int layer) {
    const int position = drawn(random_, 0, written(layer));
    check_read(layer, position, drawn(random_, 0, written(layer) - position));
  }

 private:
  void put(int layer, int position, const Bytes& rows) {
    Bytes& held = held_[layer];
    const size_t at = static_cast<size_t>(position) * row_bytes_;
    held.resize(std::max(held.size(), at + rows.size()));
    std::copy(rows.begin(), rows.end(), held.begin() + static_cast<ptrdiff_t>(at));
  }

  std::mt19937 random_;
  Cached cached_;
  size_t row_bytes_;
  std::shared_ptr<Sequence> sequence_;
  Bytes held_[kLayers];
};

std::shared_ptr<Model> model_of(const std::shared_ptr<Device>& device, const Cached& cached) {
  ModelShape shape;
  LayerShape layer;
  layer.mixer = cached.mixer;
  shape.layers.assign(kLayers, layer);
  shape.max_positions = 3 * kAttentionChunk - 40;
  return std::make_shared<Model>(device, shape);
}

// Sequences of one model that are forked, truncated, written and disposed of in any order.
class Forest {
 public:
  Forest(const std::shared_ptr<Model>& model, const Cached& cached, std::mt19937& random)
      : random_(random()), model_(model), begun_(used_bytes()) {
    branches_.emplace_back(model, cached, random_);
  }

  void step() {
    Mirrored& branch = branches_[static_cast<size_t>(drawn(random_, 0, static_cast<int>(branches_.size()) - 1))];
    const int length = branch.sequence().length();
    switch (drawn(random_, 0, 5)) {
      case 0: branch.truncate(drawn(random_, 0, length)); break;
      case 1:
        if (branches_.size() > 1) std::swap(branch, branches_.back()), branches_.pop_back();
        break;
      case 2:
        if (branches_.size() < 6) fork(branch, drawn(random_, 0, length));
        break;
      default: write(branch);
    }
    check(model_->sequence_memory()->held_bytes() == used_bytes() - begun_, "sequences hold other memory than they say");
  }

  void check_all() {
    for (Mirrored& branch : branches_) {
      for (int layer = 0; layer < kLayers; layer++) branch.check_read(layer, 0, branch.written(layer));
    }
  }

  int refused() const { return refused_; }

 private:
  uint64_t used_bytes() const { return model_->backend().info().used_bytes; }

  void fork(Mirrored& branch, int length) {
    const uint64_t before = used_bytes();
    Mirrored fork = branch.fork(length);
    branches_.push_back(std::move(fork));
    check(used_bytes() == before, "a fork takes memory");
  }

  // If memory is refused, the predicted bytes did not fit, and nothing has changed.
  void write(Mirrored& branch) {
    const int position = drawn(random_, 0, branch.sequence().length());
    const int rows = drawn(random_, 0, std::min(300, model_->shape().max_positions - position));
    const uint64_t before = used_bytes();
    const uint64_t foretold = branch.sequence().bytes_to_write(position, position + rows);
    try {
      branch.sequence().reserve(position, position + rows);
      check(used_bytes() == before + foretold, "a write takes other memory than was foretold");
      for (int layer = 0; layer < kLayers; layer++) branch.write(layer, position, rows);
      check(used_bytes() == before + foretold, "rows take memory that had been reserved");
    } catch (const Error& error) {
      const uint64_t budget = model_->backend().info().budget_bytes;
      check(error.code() == ErrorCode::device_out_of_memory && budget > 0, error.what());
      check(before + foretold > budget, "memory is refused that there is");
      check(used_bytes() == before, "a write that was refused has taken memory");
      refused_++;
    }
  }

  std::mt19937 random_;
  std::shared_ptr<Model> model_;
  uint64_t begun_;
  std::vector<Mirrored> branches_;
  int refused_ = 0;
};

}  // namespace

int check_forks(std::unique_ptr<Backend> backend, std::mt19937& random) {
  const auto device = std::make_shared<Device>(std::move(backend));
  int refused = 0;
  for (const Cached& cached : {attention_of(2, 20), attention_of(8, 16), attention_of(3, 24, 16), latent_of(17, 6)}) {
    const std::shared_ptr<Model> model = model_of(device, cached);
    {
      Forest forest(model, cached, random);
      for (int step = 0; step < 150; step++) {
        forest.step();
        if (step % 10 == 0) forest.check_all();
      }
      forest.check_all();
      refused += forest.refused();
    }
    check(model->sequence_memory()->held_bytes() == 0, "sequences that are gone hold memory");
  }
  return refused;
}

void check_spaced_rows(const std::shared_ptr<Backend>& backend, std::mt19937& random) {
  for (int i = 0; i < 20; i++) {
    const DeviceMemory memory(backend, 20000);
    check_pieces(*backend, memory, drawn_pieces(random, memory.bytes(), 20000, 9, 300), random);
  }
  constexpr size_t kLarge = 9 << 20;
  const DeviceMemory memory(backend, kLarge);
  check_pieces(*backend, memory, drawn_pieces(random, memory.bytes(), kLarge, 300, 5000), random);
  check_pieces(*backend, memory, drawn_pieces(random, memory.bytes(), kLarge, 2, 2 << 20), random);
  check_pieces(*backend, memory, {{memory.bytes() + 5, 2, (3 << 20) + 1, 5 << 20}}, random);
  check_pieces(*backend, memory, {}, random);
}

void check_key_values(std::unique_ptr<Backend> backend, std::mt19937& random) {
  const auto device = std::make_shared<Device>(std::move(backend));
  const Cached shapes[] = {attention_of(1, 2),  attention_of(2, 20),     attention_of(3, 34),  attention_of(8, 16),
                           attention_of(5, 80), attention_of(1, 256),    attention_of(8, 128), latent_of(512, 64),
                           latent_of(17, 6),    attention_of(3, 24, 16), attention_of(2, 5, 9)};
  for (const Cached& cached : shapes) {
    Mirrored mirrored(model_of(device, cached), cached, random);
    for (const int position : {0, 1, 2, 254, 255, 256, 257, 511}) {
      mirrored.write(0, std::min(position, mirrored.written(0)), position + 1 - std::min(position, mirrored.written(0)));
      mirrored.check_read(0, position, 1);
    }
    for (const auto& [position, rows] : {std::pair{0, 256}, {0, 512}, {255, 2}, {255, 257}, {256, 256}, {100, 400}, {512, 0}}) {
      mirrored.check_read(0, position, rows);
    }
    for (int round = 0; round < 12; round++) {
      for (const int layer : {1, 0, 1}) mirrored.write_or_store_any(layer, round % 3 == 0 ? 600 : 30);
      mirrored.check_read_any(round % kLayers);
    }
    for (int layer = 0; layer < kLayers; layer++) mirrored.check_read(layer, 0, mirrored.written(layer));
  }
}

void check_key_values_of_threads(std::unique_ptr<Backend> backend, std::mt19937& random) {
  const auto device = std::make_shared<Device>(std::move(backend));
  const Cached cached = attention_of(4, 32);
  const std::shared_ptr<Model> model = model_of(device, cached);
  const auto write_and_read = [](Mirrored& mirrored) {
    for (int round = 0; round < 40; round++) {
      mirrored.write(round % kLayers, 0, 1 + 7 * round);
      mirrored.check_read(round % kLayers, round, 1 + 6 * round);
    }
  };
  Mirrored first(model, cached, random);
  Mirrored second(model, cached, random);
  Mirrored third(model, cached, random);
  auto one = std::async(std::launch::async, [&] { write_and_read(first); });
  auto other = std::async(std::launch::async, [&] { write_and_read(second); });
  // Operators are called from one thread.
  for (int round = 0; round < 40; round++) third.store(0, round, 3);
  one.get();
  other.get();
  third.check_read(0, 0, third.written(0));
}

}  // namespace odmoe::test
