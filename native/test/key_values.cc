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

// Any bits, those of no number too.
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

// Pieces one behind the other in memory of so many bytes, with gaps.
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

// visit(where a row lies in the memory, where on the host, its bytes).
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
  // The host's memory is the caller's again.
  std::fill(scattered.begin(), scattered.end(), uint8_t{0});
  Bytes after(before.size());
  backend.copy_to_host(after.data(), memory.bytes(), after.size());
  check(after == expected, "scattered rows, or what stands between them, are others");
}

struct Rows {
  Bytes keys;
  Bytes values;
  bool operator==(const Rows&) const = default;
};

// A sequence, and beside it what it should hold.
class Mirrored {
 public:
  Mirrored(const std::shared_ptr<Model>& model, std::mt19937& random)
      : random_(random()), shape_(model->shape()), row_bytes_(float_bytes(shape_.kv_size())), sequence_(model) {}

  Sequence& sequence() { return sequence_; }
  int written(int layer) const { return static_cast<int>(held_[layer].keys.size() / row_bytes_); }

  void write(int layer, int position, int rows) {
    Rows some = {random_bytes(random_, rows * row_bytes_), random_bytes(random_, rows * row_bytes_)};
    put(layer, position, some);
    sequence_.write_key_values(layer, position, rows, some.keys, some.values);
    // The host's memory is the caller's again.
    std::fill(some.keys.begin(), some.keys.end(), uint8_t{0});
    std::fill(some.values.begin(), some.values.end(), uint8_t{0});
  }

  // As a pass does.
  void store(int layer, int position, int rows) {
    Backend& backend = *sequence_.model()->device()->backend();
    const Rows some = {random_bytes(random_, rows * row_bytes_), random_bytes(random_, rows * row_bytes_)};
    put(layer, position, some);
    const DeviceMemory keys(sequence_.model()->device()->backend(), some.keys.size());
    const DeviceMemory values(sequence_.model()->device()->backend(), some.values.size());
    backend.copy_to_device(keys.bytes(), some.keys.data(), some.keys.size());
    backend.copy_to_device(values.bytes(), some.values.data(), some.values.size());
    sequence_.reserve(position + rows);
    std::vector<AttentionRow> cached;
    for (int i = 0; i < rows; i++) cached.push_back({sequence_.cache(layer), position + i});
    backend.store_key_values(cached.data(), keys.floats(), values.floats(), shape_.kv_size(), rows,
                             {shape_.heads, shape_.kv_heads, shape_.head_dim, 0});
    sequence_.written(layer, position + rows);
  }

  void write_or_store_any(int layer, int most_rows) {
    const int position = drawn(random_, std::max(0, written(layer) - most_rows), written(layer));
    const int rows = drawn(random_, 0, std::min(most_rows, shape_.max_positions - position));
    if (rows > 0 && drawn(random_, 0, 2) == 0) {
      store(layer, position, rows);
    } else {
      write(layer, position, rows);
    }
  }

  void check_read(int layer, int position, int rows) {
    Rows read = {Bytes(rows * row_bytes_), Bytes(rows * row_bytes_)};
    sequence_.read_key_values(layer, position, rows, read.keys, read.values);
    check(read == get(layer, position, rows), std::to_string(shape_.kv_heads) + " heads of " + std::to_string(shape_.head_dim) +
                                                  ": rows that are read from position " + std::to_string(position) +
                                                  " on are others, of " + std::to_string(rows));
  }

  void check_read_any(int layer) {
    const int position = drawn(random_, 0, written(layer));
    check_read(layer, position, drawn(random_, 0, written(layer) - position));
  }

 private:
  void put(int layer, int position, const Rows& rows) {
    Rows& held = held_[layer];
    const size_t at = static_cast<size_t>(position) * row_bytes_;
    held.keys.resize(std::max(held.keys.size(), at + rows.keys.size()));
    held.values.resize(held.keys.size());
    std::copy(rows.keys.begin(), rows.keys.end(), held.keys.begin() + static_cast<ptrdiff_t>(at));
    std::copy(rows.values.begin(), rows.values.end(), held.values.begin() + static_cast<ptrdiff_t>(at));
  }

  Rows get(int layer, int position, int rows) const {
    const auto cut = [&](const Bytes& from) {
      const auto begin = from.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(position) * row_bytes_);
      return Bytes(begin, begin + static_cast<ptrdiff_t>(static_cast<size_t>(rows) * row_bytes_));
    };
    return {cut(held_[layer].keys), cut(held_[layer].values)};
  }

  std::mt19937 random_;
  ModelShape shape_;
  size_t row_bytes_;
  Sequence sequence_;
  Rows held_[kLayers];
};

std::shared_ptr<Model> model_of(const std::shared_ptr<Device>& device, int kv_heads, int head_dim) {
  ModelShape shape;
  shape.layers = kLayers;
  shape.heads = kv_heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  shape.rope_theta = 10000;
  shape.max_positions = 3 * kAttentionChunk - 40;
  return std::make_shared<Model>(device, shape);
}

}  // namespace

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
  constexpr int kShapes[][2] = {{1, 2}, {2, 20}, {3, 34}, {8, 16}, {5, 80}, {1, 256}, {8, 128}};
  for (const auto& [kv_heads, head_dim] : kShapes) {
    const std::shared_ptr<Model> model = model_of(device, kv_heads, head_dim);
    Mirrored mirrored(model, random);
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
  const std::shared_ptr<Model> model = model_of(device, 4, 32);
  const auto write_and_read = [](Mirrored& mirrored) {
    for (int round = 0; round < 40; round++) {
      mirrored.write(round % kLayers, 0, 1 + 7 * round);
      mirrored.check_read(round % kLayers, round, 1 + 6 * round);
    }
  };
  Mirrored first(model, random);
  Mirrored second(model, random);
  Mirrored third(model, random);
  auto one = std::async(std::launch::async, [&] { write_and_read(first); });
  auto other = std::async(std::launch::async, [&] { write_and_read(second); });
  // Operators are called from one thread.
  for (int round = 0; round < 40; round++) third.store(0, round, 3);
  one.get();
  other.get();
  third.check_read(0, 0, third.written(0));
}

}  // namespace odmoe::test
