// Attention and the KV cache against the reference: chunks, windows, groups of heads, rows of one and of several
// sequences.
#include <algorithm>
#include <cmath>

#include "compared.h"
#include "odmoe/arithmetic.h"

namespace odmoe::cuda_test {
namespace {

constexpr float kUsual = -1;  // as a score scale: 1 / sqrt(head_dim)

// Values as wide as keys, or with their own width; or values in the first dimensions of the keys.
AttentionShape shape_of(int heads, int kv_heads, int head_dim, int window = 0, int value_dim = 0, float score_scale = kUsual) {
  AttentionShape shape;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  shape.value_dim = value_dim == 0 ? head_dim : value_dim;
  shape.sliding_window = window;
  shape.score_scale = score_scale == kUsual ? 1.0f / std::sqrt(static_cast<float>(head_dim)) : score_scale;
  return shape;
}

// Latent attention: one key-value head, whose keys and values all heads use.
AttentionShape latent_shape(int heads, int head_dim, int value_dim) {
  AttentionShape shape = shape_of(heads, 1, head_dim, 0, value_dim, 0.1147213867929261f);
  shape.values_in_keys = true;
  return shape;
}

// Keys and values of one sequence, in the order in which they are stored.
struct Sequence {
  int positions;
  std::vector<float> keys;
  std::vector<float> values;
};

// Queries and keys without the large values of random_floats, with which each row would use one position only.
std::vector<float> moderate_floats(std::mt19937& random, int64_t count) {
  std::vector<float> values = random_floats(random, count);
  for (float& value : values) value = std::fabs(value) > 16.0f ? value * 0x1p-12f : value;
  return values;
}

Sequence random_sequence(std::mt19937& random, const AttentionShape& shape, int positions) {
  const int64_t heads = int64_t{positions} * shape.kv_heads;
  return {positions, moderate_floats(random, heads * shape.head_dim), random_floats(random, heads * shape.value_dim)};
}

// A sequence's cache on one backend. Places without a stored position hold NaN.
class Cache {
 public:
  Cache(const std::shared_ptr<Backend>& backend, const AttentionShape& shape, const Sequence& sequence, int64_t offset)
      : values_in_keys_(shape.values_in_keys) {
    const int64_t positions = int64_t{shape.kv_heads} * kAttentionChunk;
    for (int start = 0; start < sequence.positions; start += kAttentionChunk) {
      add_block(backend, key_blocks_, positions * shape.head_dim);
      if (!values_in_keys_) add_block(backend, value_blocks_, positions * shape.value_dim);
    }
    const int64_t stride = int64_t{shape.kv_heads} * std::max(shape.head_dim, shape.value_dim) + offset;
    const auto spread = [&](const std::vector<float>& rows, int dim) {
      const int64_t width = int64_t{shape.kv_heads} * dim;
      std::vector<float> wider(static_cast<size_t>(sequence.positions * stride), NAN);
      for (int64_t i = 0; i < sequence.positions; ++i) {
        std::copy_n(rows.begin() + i * width, width, wider.begin() + i * stride);
      }
      return wider;
    };
    const FencedFloats keys(backend, spread(sequence.keys, shape.head_dim), offset);
    const FencedFloats values(backend, spread(sequence.values, shape.value_dim), offset);
    std::vector<AttentionRow> rows;
    for (int position = 0; position < sequence.positions; ++position) rows.push_back({layer(), position});
    backend->store_key_values(rows.data(), keys.data(), values_in_keys_ ? nullptr : values.data(), stride, sequence.positions,
                              shape);
  }

  KeyValueLayer layer() const { return {key_blocks_.data(), values_in_keys_ ? nullptr : value_blocks_.data()}; }
  std::vector<float> stored() const {
    std::vector<float> all;
    for (const auto& block : memory_) {
      const std::vector<float> values = block->values();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

 private:
  void add_block(const std::shared_ptr<Backend>& backend, std::vector<float*>& list, int64_t floats) {
    memory_.push_back(std::make_unique<FencedFloats>(backend, std::vector<float>(static_cast<size_t>(floats), NAN), 0));
    list.push_back(memory_.back()->data());
  }

  const bool values_in_keys_;
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
              std::to_string(shape.head_dim) + "/" + std::to_string(shape.value_dim) + (shape.values_in_keys ? " in keys" : "") +
              ", window " + std::to_string(shape.sliding_window)) {
    if (shape.sinks != nullptr) sinks_ = moderate_floats(devices.random, shape.heads);
    for (const Sequence& sequence : sequences) {
      // Some rows can be read 16 bytes at a time, others cannot.
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
    const FencedFloats sinks(backend, sinks_, 0);
    const FencedFloats out(backend, poison(int64_t{n} * shape_.heads * shape_.value_dim), 1);
    AttentionShape shape = shape_;
    shape.sinks = sinks_.empty() ? nullptr : sinks.data();
    backend->attention(out.data(), sent.data(), from.data(), stride(), n, shape);
    return out.values();
  }

  Devices& devices_;
  AttentionShape shape_;
  std::string what_;
  std::vector<float> sinks_;
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

// Enough rows that tiles have several of them: in a run, in any order, and of sequences in turn.
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

// Rows are stored and attend in one call; later rows see earlier ones.
void stores_and_attends(Devices& devices, const AttentionShape& shape) {
  const Sequence sequence = random_sequence(devices.random, shape, 290);
  const Sequence other = random_sequence(devices.random, shape, 7);
  constexpr int kRows[] = {1, 20, 3};
  int64_t count = 0;
  for (const int n : kRows) count += n;
  const int64_t key_floats = int64_t{shape.kv_heads} * shape.head_dim;
  const int64_t value_floats = shape.values_in_keys ? 0 : int64_t{shape.kv_heads} * shape.value_dim;
  const int64_t width = int64_t{shape.heads} * shape.head_dim + key_floats + value_floats;
  const std::vector<float> qkv = moderate_floats(devices.random, count * width);
  std::vector<float> results[2];
  for (const int which : {0, 1}) {
    const std::shared_ptr<Backend>& backend = which == 0 ? devices.cuda : devices.reference;
    const Cache caches[2] = {{backend, shape, sequence, 0}, {backend, shape, other, 0}};
    const FencedFloats rows(backend, qkv, 0);
    int next[2] = {245, 5};  // used positions of each sequence's memory
    const float* at = rows.data();
    for (const int n : kRows) {
      std::vector<AttentionRow> sent;
      for (int i = 0; i < n; ++i) sent.push_back({caches[i % 4 == 3].layer(), next[i % 4 == 3]++});
      const FencedFloats out(backend, poison(int64_t{n} * shape.heads * shape.value_dim), 1);
      const float* const keys = at + int64_t{shape.heads} * shape.head_dim;
      const float* const values = shape.values_in_keys ? nullptr : keys + key_floats;
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

// Attention that needs more scratch than one slice may take.
void attends_in_slices(Devices& devices) {
  const AttentionShape shape = shape_of(32, 4, 8);
  constexpr int kLast = 25599;
  const Case attention(devices, shape, {random_sequence(devices.random, shape, kLast + 1)}, "slices");
  attention.compare(
      {{0, kLast}, {0, 3}, {0, 255}, {0, 256}, {0, 700}, {0, 0}, {0, 1}, {0, 2}, {0, 40}, {0, 41}, {0, 512}, {0, 301}});
}

// One key or value is not a number, or so large that scores overflow; only some rows of the batch see it.
void meets_strange_numbers(Devices& devices, const AttentionShape& shape) {
  constexpr float kStrange[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0x1p-149f};
  for (const float strange : kStrange) {
    for (const bool in_keys : {false, true}) {
      // Separate values are not read where the values are in the keys.
      if (shape.values_in_keys && !in_keys) continue;
      Sequence sequence = random_sequence(devices.random, shape, 300);
      const int64_t width = int64_t{shape.kv_heads} * (in_keys ? shape.head_dim : shape.value_dim);
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

// A sink takes part in the softmax of every row and head, but adds no value.
AttentionShape with_sinks(AttentionShape shape) {
  static constexpr float kThere = 0;  // each case draws its own
  shape.sinks = &kThere;
  return shape;
}

void attends_to_sinks(Devices& devices) {
  for (const int window : {0, 1, 5, 128, 300}) attends(devices, with_sinks(shape_of(8, 1, 64, window)));
  attends(devices, with_sinks(shape_of(4, 2, 16)));
  attends_in_tiles(devices, with_sinks(shape_of(2, 2, 8, 128)), 260);
  meets_strange_numbers(devices, with_sinks(shape_of(4, 2, 16)));
}

// Heads whose values have another size than their keys, and scores with another scale.
void attends_in_other_sizes(Devices& devices) {
  attends(devices, shape_of(4, 2, 24, 0, 16));
  attends(devices, shape_of(4, 4, 48, 0, 80, 0.25f));
  attends(devices, shape_of(16, 2, 256, 0, 0, 1.0f));
  attends(devices, shape_of(8, 1, 512, 300));
  attends(devices, shape_of(2, 1, 16, 0, 300));
  stores_and_attends(devices, shape_of(4, 2, 24, 0, 20));
  stores_and_attends(devices, shape_of(3, 1, 15, 0, 18));
}

void attends_to_latents(Devices& devices) {
  attends(devices, latent_shape(16, 576, 512));
  attends(devices, latent_shape(20, 40, 32));
  attends(devices, latent_shape(5, 33, 17));
  attends(devices, latent_shape(128, 24, 16));
  // Enough rows that a block's warps share keys, and values use the larger tiles.
  attends_in_tiles(devices, latent_shape(40, 24, 16), 60);
  attends_in_tiles(devices, latent_shape(20, 310, 300), 40);
  attends_in_tiles(devices, latent_shape(128, 16, 8), 12);
  stores_and_attends(devices, latent_shape(6, 24, 16));
  stores_and_attends(devices, latent_shape(16, 15, 9));
  meets_strange_numbers(devices, latent_shape(20, 24, 16));
}

struct Indexer {
  int heads;
  int head_dim;
  int count;
  std::vector<int> positions;  // of the rows
};

// The chosen positions, as floats, and the keys there. Weights are a few values each, so that scores are often equal.
void chooses_positions(Devices& devices, const Indexer& of) {
  const auto n = static_cast<int>(of.positions.size());
  const AttentionShape shape = latent_shape(1, of.head_dim, of.head_dim);
  const Sequence sequence = random_sequence(devices.random, shape, 1 + *std::max_element(of.positions.begin(), of.positions.end()));
  const std::vector<float> queries = moderate_floats(devices.random, int64_t{n} * of.heads * of.head_dim);
  std::vector<float> weights = random_floats(devices.random, int64_t{n} * of.heads);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = i % 3 == 0 ? 0.0f : i % 37 == 1 ? INFINITY : weights[i];
  compare(devices, named("choice", of.heads, of.head_dim, of.count), [&](const std::shared_ptr<Backend>& backend) {
    const Cache cache(backend, shape, sequence, 0);
    const FencedFloats by(backend, queries, 0);
    const FencedFloats weighed(backend, weights, 1);
    const FencedFloats chosen(backend, std::vector<float>(static_cast<size_t>(n * of.count)), 0);
    const int64_t stride = gathered_floats(of.count, of.head_dim);
    const FencedFloats gathered(backend, poison(n * stride), 0);
    std::vector<AttentionRow> rows;
    for (const int position : of.positions) rows.push_back({cache.layer(), position});
    auto* const places = reinterpret_cast<int32_t*>(chosen.data());
    backend->choose_positions({places, rows.data(), by.data(), weighed.data(), n, of.heads, of.head_dim, of.count});
    backend->gather_keys(gathered.data(), rows.data(), places, n, of.count, of.head_dim);
    std::vector<int32_t> numbers(static_cast<size_t>(n * of.count));
    backend->copy_to_host(numbers.data(), places, numbers.size() * sizeof(int32_t));
    std::vector<float> all(numbers.begin(), numbers.end());
    const std::vector<float> keys = gathered.values();
    all.insert(all.end(), keys.begin(), keys.end());
    return all;
  });
}

struct BlockIndexer {
  int heads;
  int head_dim;
  int block_size;
  int blocks;
  int local_blocks;
  std::vector<int> positions;  // of the rows
};

// The positions of the chosen blocks, as floats. Some queries are 0, so that all their scores are equal, and some are not finite.
void chooses_blocks(Devices& devices, const BlockIndexer& of) {
  const auto n = static_cast<int>(of.positions.size());
  const AttentionShape shape = latent_shape(1, of.head_dim, of.head_dim);
  const Sequence sequence = random_sequence(devices.random, shape, 1 + *std::max_element(of.positions.begin(), of.positions.end()));
  std::vector<float> queries = moderate_floats(devices.random, int64_t{n} * of.heads * of.head_dim);
  for (size_t i = 0; i < queries.size(); ++i) {
    const size_t place = i / static_cast<size_t>(of.head_dim);
    if (place % 3 == 1) queries[i] = 0.0f;
    if (place % 5 == 3 && i % 7 == 0) queries[i] = i % 2 == 0 ? INFINITY : -INFINITY;
  }
  compare(devices, named("choice of blocks", of.heads, of.head_dim, of.block_size), [&](const std::shared_ptr<Backend>& backend) {
    const Cache cache(backend, shape, sequence, 0);
    const FencedFloats by(backend, queries, 0);
    std::vector<int32_t> numbers(static_cast<size_t>(n * of.heads * of.blocks * of.block_size));
    const FencedFloats chosen(backend, std::vector<float>(numbers.size()), 0);
    std::vector<AttentionRow> rows;
    for (const int position : of.positions) rows.push_back({cache.layer(), position});
    auto* const places = reinterpret_cast<int32_t*>(chosen.data());
    backend->choose_blocks({places, rows.data(), by.data(), n, of.heads, of.head_dim, of.block_size, of.blocks, of.local_blocks});
    backend->copy_to_host(numbers.data(), places, numbers.size() * sizeof(int32_t));
    return std::vector<float>(numbers.begin(), numbers.end());
  });
}

void chooses(Devices& devices) {
  chooses_blocks(devices, {2, 16, 8, 4, 1, {3, 31, 32, 33, 255, 256, 300}});
  chooses_blocks(devices, {4, 128, 128, 2, 1, {255, 256, 600, 1000}});
  chooses_blocks(devices, {3, 20, 7, 3, 0, {20, 21, 22, 27, 28, 260}});
  chooses_blocks(devices, {1, 33, 1, 5, 2, {4, 5, 6, 511, 512}});
  chooses_blocks(devices, {20, 96, 37, 4, 4, {147, 148, 700}});
  chooses_blocks(devices, {2, 24, 300, 1, 1, {299, 300, 650}});
  chooses_positions(devices, {5, 20, 7, {3, 6, 7, 8, 255, 256, 300}});
  chooses_positions(devices, {8, 128, 40, {511, 512, 39, 40, 41, 700}});
  chooses_positions(devices, {2, 33, 1, {0, 1, 2, 31, 32, 600}});
  chooses_positions(devices, {3, 96, 300, {299, 300, 301, 1100}});
  chooses_positions(devices, {64, 128, 3, {4, 100}});
}

}  // namespace

void test_attention(Devices& devices) {
  for (const AttentionShape& shape :
       {shape_of(4, 2, 16), shape_of(2, 2, 8), shape_of(8, 2, 64), shape_of(3, 3, 80), shape_of(8, 1, 128), shape_of(6, 2, 128),
        shape_of(12, 1, 20), shape_of(1, 1, 256), shape_of(1, 1, 300), shape_of(2, 1, 64), shape_of(1, 1, 96)}) {
    attends(devices, shape);
  }
  for (const int window : {1, 2, 3, 255, 256, 257, 300, 5000}) {
    attends(devices, shape_of(4, 2, 16, window));
    attends_in_tiles(devices, shape_of(2, 2, 8, window), 260);
  }
  attends_in_tiles(devices, shape_of(2, 2, 8), 700);
  for (const AttentionShape& shape : {shape_of(2, 1, 64), shape_of(4, 1, 32), shape_of(3, 1, 128), shape_of(8, 1, 16)}) {
    attends_in_tiles(devices, shape, 260);
  }
  for (const AttentionShape& shape : {shape_of(4, 2, 16), shape_of(8, 1, 128, 100), shape_of(3, 3, 80)}) {
    stores_and_attends(devices, shape);
  }
  attends_in_slices(devices);
  meets_strange_numbers(devices, shape_of(4, 2, 16));
  meets_strange_numbers(devices, shape_of(2, 2, 64, 7));
  attends_to_sinks(devices);
  attends_in_other_sizes(devices);
  attends_to_latents(devices);
  chooses(devices);
}

}  // namespace odmoe::cuda_test
