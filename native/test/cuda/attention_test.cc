// Attention and the KV cache against the reference: chunks, windows, groups of heads, rows of one and of several
// sequences.
#include <algorithm>
#include <cmath>

#include "fenced_floats.h"
#include "odmoe/arithmetic.h"

namespace odmoe::cuda_test {
namespace {

// Keys and values of one sequence, in the order in which they are stored.
struct Sequence {
  int positions;
  std::vector<float> keys;
  std::vector<float> values;
};

// Queries and keys without the large ones of random_floats, which would leave one position to each row.
std::vector<float> moderate_floats(std::mt19937& random, int64_t count) {
  std::vector<float> values = random_floats(random, count);
  for (float& value : values) value = std::fabs(value) > 16.0f ? value * 0x1p-12f : value;
  return values;
}

Sequence random_sequence(std::mt19937& random, const AttentionShape& shape, int positions) {
  const int64_t count = int64_t{positions} * shape.kv_heads * shape.head_dim;
  return {positions, moderate_floats(random, count), random_floats(random, count)};
}

// A sequence's cache on one backend. What no position has been stored at holds NaN.
class Cache {
 public:
  Cache(const std::shared_ptr<Backend>& backend, const AttentionShape& shape, const Sequence& sequence, int64_t offset) {
    const int64_t block = int64_t{shape.kv_heads} * kAttentionChunk * shape.head_dim;
    const std::vector<float> unused(static_cast<size_t>(block), NAN);
    for (int start = 0; start < sequence.positions; start += kAttentionChunk) {
      for (auto* const list : {&key_blocks_, &value_blocks_}) {
        memory_.push_back(std::make_unique<FencedFloats>(backend, unused, 0));
        list->push_back(memory_.back()->data());
      }
    }
    const int64_t width = int64_t{shape.kv_heads} * shape.head_dim;
    const int64_t stride = width + offset;
    const auto spread = [&](const std::vector<float>& rows) {
      std::vector<float> wider(static_cast<size_t>(sequence.positions * stride), NAN);
      for (int64_t i = 0; i < sequence.positions; ++i) {
        std::copy_n(rows.begin() + i * width, width, wider.begin() + i * stride);
      }
      return wider;
    };
    const FencedFloats keys(backend, spread(sequence.keys), offset);
    const FencedFloats values(backend, spread(sequence.values), offset);
    std::vector<AttentionRow> rows;
    for (int position = 0; position < sequence.positions; ++position) rows.push_back({layer(), position});
    backend->store_key_values(rows.data(), keys.data(), values.data(), stride, sequence.positions, shape);
  }

  KeyValueLayer layer() const { return {key_blocks_.data(), value_blocks_.data()}; }
  std::vector<float> stored() const {
    std::vector<float> all;
    for (const auto& block : memory_) {
      const std::vector<float> values = block->values();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

 private:
  std::vector<std::unique_ptr<FencedFloats>> memory_;
  std::vector<float*> key_blocks_;
  std::vector<float*> value_blocks_;
};

struct Row {
  int sequence;
  int position;
};

// The same sequences in the caches of the tested device and of the reference.
class Case {
 public:
  Case(Devices& devices, const AttentionShape& shape, const std::vector<Sequence>& sequences, const std::string& what)
      : devices_(devices),
        shape_(shape),
        what_(what + ", heads " + std::to_string(shape.heads) + "/" + std::to_string(shape.kv_heads) + ", head dimension " +
              std::to_string(shape.head_dim) + ", window " + std::to_string(shape.sliding_window)) {
    for (const Sequence& sequence : sequences) {
      // Rows that can be read 16 bytes at a time, and rows that cannot.
      const int64_t offset = sequence.positions % 2 == 0 ? 0 : 1;
      caches_[0].push_back(std::make_unique<Cache>(devices.cuda, shape, sequence, offset));
      caches_[1].push_back(std::make_unique<Cache>(devices.reference, shape, sequence, offset));
      expect_equal(what_ + ": the cache", caches_[0].back()->stored(), caches_[1].back()->stored());
    }
  }

  void compare(const std::vector<Row>& rows) const {
    compare(rows, moderate_floats(devices_.random, static_cast<int64_t>(rows.size()) * stride()));
  }

  void compare(const std::vector<Row>& rows, const std::vector<float>& queries) const {
    const std::string first = ", " + std::to_string(rows.size()) + " rows from position " + std::to_string(rows[0].position);
    expect_equal(what_ + first, attend(0, rows, queries), attend(1, rows, queries));
  }

  int64_t stride() const { return int64_t{shape_.heads} * shape_.head_dim + 3; }

 private:
  std::vector<float> attend(int which, const std::vector<Row>& rows, const std::vector<float>& queries) const {
    const std::shared_ptr<Backend>& backend = which == 0 ? devices_.cuda : devices_.reference;
    std::vector<AttentionRow> sent;
    for (const Row& row : rows) {
      sent.push_back({caches_[which][static_cast<size_t>(row.sequence)]->layer(), row.position});
    }
    const auto n = static_cast<int>(rows.size());
    const FencedFloats from(backend, queries, 0);
    const FencedFloats out(backend, poison(int64_t{n} * shape_.heads * shape_.head_dim), 1);
    backend->attention(out.data(), sent.data(), from.data(), stride(), n, shape_);
    return out.values();
  }

  Devices& devices_;
  AttentionShape shape_;
  std::string what_;
  std::vector<std::unique_ptr<Cache>> caches_[2];
};

std::vector<Row> consecutive(int first, int count) {
  std::vector<Row> rows;
  for (int i = 0; i < count; ++i) rows.push_back({0, first + i});
  return rows;
}

void attends(Devices& devices, const AttentionShape& shape) {
  const Case attention(devices, shape, {random_sequence(devices.random, shape, 701), random_sequence(devices.random, shape, 40)},
                       "attention");
  for (const int position : {0, 1, 255, 256, 257, 511, 700}) attention.compare({{0, position}});
  attention.compare(consecutive(0, 5));
  attention.compare(consecutive(250, 13));
  attention.compare({{0, 511}, {0, 512}, {1, 3}, {0, 7}, {1, 39}});
}

// Enough rows that tiles hold several of them: in a run, in any order, and of sequences in turn.
void attends_in_tiles(Devices& devices, const AttentionShape& shape, int count) {
  const Case attention(devices, shape, {random_sequence(devices.random, shape, 600), random_sequence(devices.random, shape, 77)},
                       "tiles");
  attention.compare(consecutive(240, std::min(count, 360)));
  std::vector<Row> rows;
  std::uniform_int_distribution<int> any(0, 599);
  for (int i = 0; i < count; ++i) rows.push_back({i / 5 % 3 == 2 ? 1 : 0, any(devices.random)});
  for (Row& row : rows) row.position = row.sequence == 1 ? row.position % 77 : row.position;
  attention.compare(rows);
}

// Rows that are stored and attend in one call; later ones see those before them.
void stores_and_attends(Devices& devices, const AttentionShape& shape) {
  const Sequence sequence = random_sequence(devices.random, shape, 290);
  const Sequence other = random_sequence(devices.random, shape, 7);
  constexpr int kRows[] = {1, 20, 3};
  int64_t count = 0;
  for (const int n : kRows) count += n;
  const int64_t width = int64_t{shape.heads + 2 * shape.kv_heads} * shape.head_dim;
  const std::vector<float> qkv = moderate_floats(devices.random, count * width);
  std::vector<float> results[2];
  for (const int which : {0, 1}) {
    const std::shared_ptr<Backend>& backend = which == 0 ? devices.cuda : devices.reference;
    const Cache caches[2] = {{backend, shape, sequence, 0}, {backend, shape, other, 0}};
    const FencedFloats rows(backend, qkv, 0);
    int next[2] = {245, 5};  // of the longer sequence's memory so much is used
    const float* at = rows.data();
    for (const int n : kRows) {
      std::vector<AttentionRow> sent;
      for (int i = 0; i < n; ++i) sent.push_back({caches[i % 4 == 3].layer(), next[i % 4 == 3]++});
      const FencedFloats out(backend, poison(int64_t{n} * shape.heads * shape.head_dim), 1);
      const float* const keys = at + int64_t{shape.heads} * shape.head_dim;
      const float* const values = keys + int64_t{shape.kv_heads} * shape.head_dim;
      if (which == 0) {
        backend->store_and_attend(out.data(), sent.data(), at, keys, values, width, n, shape);
      } else {
        backend->store_key_values(sent.data(), keys, values, width, n, shape);
        backend->attention(out.data(), sent.data(), at, width, n, shape);
      }
      const std::vector<float> got = out.values();
      results[which].insert(results[which].end(), got.begin(), got.end());
      at += n * width;
    }
    for (const Cache& cache : caches) {
      const std::vector<float> stored = cache.stored();
      results[which].insert(results[which].end(), stored.begin(), stored.end());
    }
  }
  expect_equal("stored and attended in one call, head dimension " + std::to_string(shape.head_dim), results[0], results[1]);
}

// More scratch than is taken at once.
void attends_in_slices(Devices& devices) {
  const AttentionShape shape{32, 4, 8, 0};
  constexpr int kLast = 25599;
  const Case attention(devices, shape, {random_sequence(devices.random, shape, kLast + 1)}, "slices");
  attention.compare(
      {{0, kLast}, {0, 3}, {0, 255}, {0, 256}, {0, 700}, {0, 0}, {0, 1}, {0, 2}, {0, 40}, {0, 41}, {0, 512}, {0, 301}});
}

// One key or value that is no number, or so large that scores overflow, seen by some rows of the batch and not by others.
void meets_strange_numbers(Devices& devices, const AttentionShape& shape) {
  constexpr float kStrange[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0x1p-149f};
  for (const float strange : kStrange) {
    for (const bool in_keys : {false, true}) {
      Sequence sequence = random_sequence(devices.random, shape, 300);
      const int64_t width = int64_t{shape.kv_heads} * shape.head_dim;
      (in_keys ? sequence.keys : sequence.values)[static_cast<size_t>(262 * width + 1)] = strange;
      const Case attention(devices, shape, {sequence}, "with " + std::to_string(strange) + (in_keys ? " as key" : " as value"));
      attention.compare({{0, 299}});
      attention.compare(consecutive(256, 20));
      std::vector<float> queries = moderate_floats(devices.random, 20 * attention.stride());
      for (float& query : queries) query *= 1e30f;
      attention.compare(consecutive(256, 20), queries);
      queries.assign(queries.size(), strange);
      attention.compare(consecutive(250, 20), queries);
    }
  }
}

}  // namespace

void test_attention(Devices& devices) {
  for (const AttentionShape shape :
       {AttentionShape{4, 2, 16, 0}, AttentionShape{2, 2, 8, 0}, AttentionShape{8, 2, 64, 0}, AttentionShape{3, 3, 80, 0},
        AttentionShape{8, 1, 128, 0}, AttentionShape{6, 2, 128, 0}, AttentionShape{12, 1, 20, 0}, AttentionShape{1, 1, 256, 0},
        AttentionShape{1, 1, 300, 0}, AttentionShape{2, 1, 64, 0}, AttentionShape{1, 1, 96, 0}}) {
    attends(devices, shape);
  }
  for (const int window : {1, 2, 3, 255, 256, 257, 300, 5000}) {
    attends(devices, {4, 2, 16, window});
    attends_in_tiles(devices, {2, 2, 8, window}, 260);
  }
  attends_in_tiles(devices, {2, 2, 8, 0}, 700);
  for (const AttentionShape shape :
       {AttentionShape{2, 1, 64, 0}, AttentionShape{4, 1, 32, 0}, AttentionShape{3, 1, 128, 0}, AttentionShape{8, 1, 16, 0}}) {
    attends_in_tiles(devices, shape, 350);
  }
  for (const AttentionShape shape : {AttentionShape{4, 2, 16, 0}, AttentionShape{8, 1, 128, 100}, AttentionShape{3, 3, 80, 0}}) {
    stores_and_attends(devices, shape);
  }
  attends_in_slices(devices);
  meets_strange_numbers(devices, {4, 2, 16, 0});
  meets_strange_numbers(devices, {2, 2, 64, 7});
}

}  // namespace odmoe::cuda_test
