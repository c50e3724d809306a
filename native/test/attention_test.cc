// Attention against the one arithmetic: grouped heads, chunks, sliding windows, sinks, latent heads, several sequences in one batch.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "native_tests.h"
#include "odmoe/arithmetic.h"
#include "reference_arithmetic.h"

namespace odmoe::test {
namespace {

// Heads, key-value heads, and dimensions of keys and of values; a caller that needs a window or sinks sets them.
AttentionShape shape_of(int heads, int kv_heads, int head_dim, int value_dim, int window = 0) {
  AttentionShape shape;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  shape.value_dim = value_dim;
  shape.sliding_window = window;
  shape.score_scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  return shape;
}

// One key-value head whose values are the first dimensions of its keys.
AttentionShape latent_shape(int heads, int head_dim, int value_dim) {
  AttentionShape shape = shape_of(heads, 1, head_dim, value_dim);
  shape.values_in_keys = true;
  return shape;
}

// One sequence's cache of one layer, filled through store_key_values, and a copy of its plain rows.
class SequenceCache {
 public:
  SequenceCache(Backend& backend, const AttentionShape& shape, int positions, uint32_t seed)
      : backend_(backend), shape_(shape), positions_(positions) {
    const auto poisoned_block = [&](int64_t dimensions) {
      const int64_t floats = int64_t{shape.kv_heads} * kAttentionChunk * dimensions;
      return std::make_unique<DeviceFloats>(backend, std::vector<float>(static_cast<size_t>(floats), NAN));
    };
    for (int start = 0; start < positions; start += kAttentionChunk) {
      keys_.push_back(poisoned_block(shape.head_dim));
      values_.push_back(poisoned_block(shape.values_in_keys ? 0 : shape.value_dim));
      key_blocks_.push_back(keys_.back()->data());
      value_blocks_.push_back(values_.back()->data());
    }
    // Keys and values have one stride.
    const size_t width = static_cast<size_t>(shape.kv_heads * std::max(shape.head_dim, shape.value_dim));
    plain_keys_ = random_values(static_cast<size_t>(positions) * width, seed);
    plain_values_ = shape.values_in_keys ? plain_keys_ : random_values(static_cast<size_t>(positions) * width, seed + 1);
    DeviceFloats device_keys(backend, plain_keys_);
    DeviceFloats device_values(backend, plain_values_);
    std::vector<AttentionRow> rows;
    for (int p = 0; p < positions; ++p) rows.push_back({layer(), p});
    backend.store_key_values(rows.data(), device_keys.data(), device_values.data(), static_cast<int64_t>(width), positions, shape);
  }

  KeyValueLayer layer() const { return {key_blocks_.data(), value_blocks_.data()}; }
  int positions() const { return positions_; }
  const std::vector<float>& plain_keys() const { return plain_keys_; }

  std::vector<float> expected(const std::vector<float>& query, int head, int position, const std::vector<float>& sinks = {}) const {
    const int begin = shape_.sliding_window > 0 ? std::max(0, position + 1 - shape_.sliding_window) : 0;
    const float* const sink = sinks.empty() ? nullptr : &sinks[static_cast<size_t>(head)];
    const int kv_head = head / (shape_.heads / shape_.kv_heads);
    return reference_attention(query, head_rows(plain_keys_, kv_head, shape_.head_dim),
                               head_rows(plain_values_, kv_head, shape_.value_dim), begin, position + 1, shape_.score_scale, sink);
  }

 private:
  std::vector<std::vector<float>> head_rows(const std::vector<float>& plain, int kv_head, int dimensions) const {
    const auto width = static_cast<int64_t>(plain.size()) / positions_;
    std::vector<std::vector<float>> rows;
    for (int p = 0; p < positions_; ++p) {
      const auto start = plain.begin() + p * width + int64_t{kv_head} * dimensions;
      rows.emplace_back(start, start + dimensions);
    }
    return rows;
  }

  Backend& backend_;
  AttentionShape shape_;
  int positions_;
  std::vector<std::unique_ptr<DeviceFloats>> keys_;
  std::vector<std::unique_ptr<DeviceFloats>> values_;
  std::vector<float*> key_blocks_;
  std::vector<float*> value_blocks_;
  std::vector<float> plain_keys_;
  std::vector<float> plain_values_;
};

void compare(Backend& backend, const AttentionShape& shape, const std::vector<const SequenceCache*>& caches,
             const std::vector<int>& positions, const std::string& what, const std::vector<float>& sinks = {}) {
  const int n = static_cast<int>(positions.size());
  const int64_t width = int64_t{shape.heads} * shape.value_dim;
  const int64_t stride = int64_t{shape.heads} * shape.head_dim + 3;
  const auto queries = random_values(static_cast<size_t>(n * stride), 77);
  std::vector<AttentionRow> rows;
  for (int i = 0; i < n; ++i) rows.push_back({caches[static_cast<size_t>(i)]->layer(), positions[static_cast<size_t>(i)]});
  DeviceFloats device_queries(backend, queries);
  DeviceFloats out(backend, static_cast<size_t>(n * width));
  backend.attention(out.data(), rows.data(), device_queries.data(), stride, n, shape);
  const auto got = out.read();
  for (int i = 0; i < n; ++i) {
    for (int head = 0; head < shape.heads; ++head) {
      const auto start = queries.begin() + i * stride + head * shape.head_dim;
      const std::vector<float> query(start, start + shape.head_dim);
      const auto expected = caches[static_cast<size_t>(i)]->expected(query, head, positions[static_cast<size_t>(i)], sinks);
      check_same(got.data() + i * width + head * shape.value_dim, expected.data(), expected.size(),
                 what + ", row " + std::to_string(i) + ", head " + std::to_string(head));
    }
  }
}

void attends(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  for (const AttentionShape& shape :
       {shape_of(4, 2, 16, 16), shape_of(6, 2, 64, 64), shape_of(4, 4, 80, 80), shape_of(16, 1, 20, 20), shape_of(2, 1, 128, 128),
        shape_of(4, 2, 32, 32, 5), shape_of(4, 2, 32, 32, 300), shape_of(4, 2, 48, 32), shape_of(2, 2, 24, 70),
        latent_shape(3, 40, 33)}) {
    const SequenceCache cache(*backend, shape, 530, 21);
    const std::string what =
        "head dimension " + std::to_string(shape.head_dim) + ", window " + std::to_string(shape.sliding_window);
    for (const int position : {0, 1, 4, 255, 256, 529}) compare(*backend, shape, {&cache}, {position}, what + ", alone");
    std::vector<int> positions;
    for (int p = 250; p < 263; ++p) positions.push_back(p);
    compare(*backend, shape, std::vector<const SequenceCache*>(positions.size(), &cache), positions, what + ", in a batch");
    const SequenceCache other(*backend, shape, 40, 23);
    compare(*backend, shape, {&cache, &cache, &other, &cache, &other}, {511, 512, 3, 7, 39}, what + ", of two sequences");
  }
}

// Many heads over one key-value head, at the sizes of published models.
void attends_latents(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  for (const AttentionShape& shape : {latent_shape(16, 576, 512), latent_shape(40, 96, 64)}) {
    const SequenceCache cache(*backend, shape, 300, 24);
    const std::string what = std::to_string(shape.heads) + " latent heads";
    compare(*backend, shape, {&cache}, {299}, what + ", alone");
    compare(*backend, shape, {&cache, &cache, &cache, &cache}, {254, 255, 256, 257}, what + ", in a batch");
  }
}

// A sink takes part in the greatest score and in the denominator only.
void attends_with_sinks(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  for (const int window : {0, 128}) {
    AttentionShape shape = shape_of(8, 2, 64, 64, window);
    std::vector<float> sinks = random_values(8, 25, 3.0f);
    sinks[1] = 80.0f;
    sinks[2] = -INFINITY;
    sinks[3] = NAN;
    const DeviceFloats device_sinks(*backend, sinks);
    shape.sinks = device_sinks.data();
    const SequenceCache cache(*backend, shape, 300, 26);
    for (const int position : {0, 130, 299}) compare(*backend, shape, {&cache}, {position}, "sinks", sinks);
    compare(*backend, shape, {&cache, &cache, &cache}, {254, 255, 256}, "sinks in a batch", sinks);
  }
}

// The contents of later positions, even NaN, do not change a row's result, alone or beside a row that sees them.
void ignores_the_future(const std::string& set) {
  auto backend = open_backend(set);
  const AttentionShape shape = shape_of(2, 1, 32, 32);
  const SequenceCache cache(*backend, shape, 8, 31);
  const float poison[32] = {NAN, INFINITY};
  DeviceFloats bad(*backend, std::vector<float>(poison, poison + 32));
  const AttentionRow last{cache.layer(), 7};
  backend->store_key_values(&last, bad.data(), bad.data(), 32, 1, shape);
  const auto queries = random_values(2 * 64, 32);
  DeviceFloats device_queries(*backend, queries);
  DeviceFloats out(*backend, 128);
  const AttentionRow rows[2] = {{cache.layer(), 6}, last};
  backend->attention(out.data(), rows, device_queries.data(), 64, 2, shape);
  const auto got = out.read();
  const auto expected = cache.expected({queries.begin(), queries.begin() + 32}, 0, 6);
  check_same(got.data(), expected.data(), 32, "row before a poisoned one");
  check(std::isnan(got[64]), "the poisoned row itself");
}

void close_to_double(const std::string& set) {
  auto backend = open_backend(set);
  const AttentionShape shape = shape_of(1, 1, 64, 64);
  const int positions = 300;
  const SequenceCache cache(*backend, shape, positions, 41);
  const auto keys = random_values(static_cast<size_t>(positions) * 64, 41);
  const auto values = random_values(static_cast<size_t>(positions) * 64, 42);
  const auto query = random_values(64, 43);
  DeviceFloats device_query(*backend, query);
  DeviceFloats out(*backend, 64);
  const AttentionRow row{cache.layer(), positions - 1};
  backend->attention(out.data(), &row, device_query.data(), 64, 1, shape);
  std::vector<double> scores;
  double denominator = 0;
  for (size_t p = 0; p < static_cast<size_t>(positions); ++p) {
    double score = 0;
    for (size_t d = 0; d < 64; ++d) score += double{query[d]} * keys[p * 64 + d];
    scores.push_back(std::exp(score / 8));
    denominator += scores.back();
  }
  const auto got = out.read();
  for (size_t d = 0; d < 64; ++d) {
    double exact = 0;
    for (size_t p = 0; p < static_cast<size_t>(positions); ++p) exact += scores[p] / denominator * values[p * 64 + d];
    check(std::fabs(got[d] - exact) < 1e-5, "dimension " + std::to_string(d) + " is off by " + std::to_string(got[d] - exact));
  }
}

void counts_scratch(const std::string& set) {
  auto backend = open_backend(set);
  const AttentionShape shape = shape_of(2, 1, 32, 32);
  const SequenceCache cache(*backend, shape, 600, 51);
  DeviceFloats queries(*backend, 64);
  DeviceFloats out(*backend, 64);
  const uint64_t before = backend->info().used_bytes;
  const AttentionRow row{cache.layer(), 599};
  backend->attention(out.data(), &row, queries.data(), 64, 1, shape);
  const uint64_t after = backend->info().used_bytes;
  check(after > before, "scratch is counted");
  backend->attention(out.data(), &row, queries.data(), 64, 1, shape);
  check(backend->info().used_bytes == after, "a second call takes no more");
}

// Bytes of scratch after attention at each position in turn, on a device that has `room_bytes` left for it.
uint64_t scratch_after(uint64_t room_bytes, const std::vector<int>& positions) {
  const uint64_t budget_bytes = uint64_t{16} << 20;
  auto backend = open_backend("scalar", 1, budget_bytes);
  const AttentionShape shape = shape_of(2, 1, 32, 32);
  const SequenceCache cache(*backend, shape, 1100, 52);
  DeviceFloats queries(*backend, 64);
  DeviceFloats out(*backend, 64);
  const DeviceFloats others(*backend, (budget_bytes - backend->info().used_bytes - room_bytes) / sizeof(float));
  const uint64_t before = backend->info().used_bytes;
  for (const int position : positions) {
    const AttentionRow row{cache.layer(), position};
    backend->attention(out.data(), &row, queries.data(), 64, 1, shape);
  }
  return backend->info().used_bytes - before;
}

void grows_scratch_within_the_budget() {
  const uint64_t room_bytes = uint64_t{1} << 20;
  const uint64_t needed = scratch_after(room_bytes, {1099});
  check(scratch_after(room_bytes, {900, 1099}) > needed, "where there is room it grows for what comes later too");
  check(scratch_after(needed, {900, 1099}) == needed, "in a tight budget it grows to what is needed");
  check_refused(ErrorCode::device_out_of_memory, [&] { scratch_after(needed - 4, {900, 1099}); });
}

struct Indexer {
  int heads;
  int head_dim;
  int count;
};

// One row: the positions of the best scores among keys[position][dimension], in rising order.
std::vector<int32_t> reference_choice(const Indexer& of, const float* queries, const float* weights, const std::vector<float>& keys,
                                      int position) {
  std::vector<float> scores;
  for (int p = 0; p <= position; ++p) {
    const std::vector<float> key(keys.begin() + p * of.head_dim, keys.begin() + (p + 1) * of.head_dim);
    float score = 0.0f;
    for (int head = 0; head < of.heads; ++head) {
      const float dot = reference_dot({queries + head * of.head_dim, queries + (head + 1) * of.head_dim}, key);
      score = std::fma(weights[head], dot > 0 ? dot : 0.0f, score);
    }
    scores.push_back(std::isnan(score) ? -INFINITY : score);
  }
  std::vector<int32_t> best;
  for (int p = 0; p <= position; ++p) best.push_back(p);
  std::stable_sort(best.begin(), best.end(),
                   [&](int32_t a, int32_t b) { return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)]; });
  best.resize(static_cast<size_t>(of.count));
  std::sort(best.begin(), best.end());
  return best;
}

// Rows at several positions of one cache; a row with no more positions than it sees chooses nothing.
void chooses(Backend& backend, const Indexer& of, const std::vector<int>& positions, const std::vector<float>& weights) {
  const SequenceCache cache(backend, latent_shape(1, of.head_dim, of.head_dim), 700, 61);
  const auto n = static_cast<int>(positions.size());
  const auto queries = random_values(static_cast<size_t>(n * of.heads * of.head_dim), 62);
  const DeviceFloats device_queries(backend, queries);
  const DeviceFloats device_weights(backend, weights);
  const DeviceFloats chosen(backend, static_cast<size_t>(n * of.count));
  std::vector<AttentionRow> rows;
  for (const int position : positions) rows.push_back({cache.layer(), position});
  auto* const places = reinterpret_cast<int32_t*>(chosen.data());
  backend.choose_positions({places, rows.data(), device_queries.data(), device_weights.data(), n, of.heads, of.head_dim, of.count});
  const int64_t stride = gathered_floats(of.count, of.head_dim);
  const DeviceFloats gathered(backend, static_cast<size_t>(n * stride));
  backend.gather_keys(gathered.data(), rows.data(), places, n, of.count, of.head_dim);
  const auto keys = gathered.read();
  for (int i = 0; i < n; ++i) {
    const std::string what = "row " + std::to_string(i) + " of an indexer of " + std::to_string(of.heads) + " heads";
    const std::vector<int32_t> got(places + i * of.count, places + (i + 1) * of.count);
    const int position = positions[static_cast<size_t>(i)];
    const std::vector<int32_t> expected =
        position < of.count ? std::vector<int32_t>(static_cast<size_t>(of.count))
                            : reference_choice(of, &queries[static_cast<size_t>(i * of.heads * of.head_dim)],
                                               &weights[static_cast<size_t>(i * of.heads)], cache.plain_keys(), position);
    check(got == expected, what + " chooses other positions");
    for (int j = 0; j < of.count; ++j) {
      check_same(&keys[static_cast<size_t>(i * stride + j * of.head_dim)],
                 &cache.plain_keys()[static_cast<size_t>(got[static_cast<size_t>(j)] * of.head_dim)],
                 static_cast<size_t>(of.head_dim), what + ", key " + std::to_string(j));
    }
  }
}

void chooses_positions(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  const std::vector<int> positions = {3, 19, 20, 255, 256, 511, 40, 600, 601, 602, 699};
  for (const Indexer& of : {Indexer{1, 16, 20}, Indexer{5, 20, 7}, Indexer{64, 128, 200}, Indexer{17, 96, 1}, Indexer{20, 300, 33},
                            Indexer{3, 24, 300}}) {
    const size_t count = positions.size() * static_cast<size_t>(of.heads);
    chooses(*backend, of, positions, random_values(count, 63));
    chooses(*backend, of, positions, std::vector<float>(count, -0.0f));
    std::vector<float> wild = random_values(count, 64);
    for (size_t i = 0; i < count; i += 7) wild[i] = i % 2 == 0 ? INFINITY : -INFINITY;
    chooses(*backend, of, positions, wild);
  }
  check_refused(ErrorCode::model_unsupported, [&] { chooses(*backend, {1, 1025, 2}, {5}, {1.0f}); });
}

struct BlockIndexer {
  int heads;
  int head_dim;
  int block_size;
  int blocks;
  int local_blocks;
};

// One head of one row: the positions of its blocks, in rising order; behind them its own position over and over.
std::vector<int32_t> reference_blocks(const BlockIndexer& of, const float* query, const std::vector<float>& keys, int position) {
  std::vector<float> scores(static_cast<size_t>(position / of.block_size + 1), -INFINITY);
  for (int p = 0; p <= position; ++p) {
    const std::vector<float> key(keys.begin() + p * of.head_dim, keys.begin() + (p + 1) * of.head_dim);
    float& score = scores[static_cast<size_t>(p / of.block_size)];
    const float dot = reference_dot({query, query + of.head_dim}, key);
    if (dot > score) score = dot;
  }
  const auto others = static_cast<int32_t>(scores.size()) - of.local_blocks;
  std::vector<int32_t> blocks;
  for (int32_t block = 0; block < others; ++block) blocks.push_back(block);
  std::stable_sort(blocks.begin(), blocks.end(),
                   [&](int32_t a, int32_t b) { return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)]; });
  blocks.resize(static_cast<size_t>(of.blocks - of.local_blocks));
  std::sort(blocks.begin(), blocks.end());
  for (int32_t block = others; block < others + of.local_blocks; ++block) blocks.push_back(block);
  std::vector<int32_t> chosen;
  for (const int32_t block : blocks) {
    for (int32_t i = 0; i < of.block_size; ++i) chosen.push_back(std::min(block * of.block_size + i, position));
  }
  return chosen;
}

void chooses_in_blocks(Backend& backend, const BlockIndexer& of, const std::vector<int>& positions,
                       const std::vector<float>& queries) {
  const SequenceCache cache(backend, latent_shape(1, of.head_dim, of.head_dim), 700, 65);
  const auto n = static_cast<int>(positions.size());
  const int count = of.blocks * of.block_size;
  const DeviceFloats device_queries(backend, queries);
  const DeviceFloats chosen(backend, static_cast<size_t>(n * of.heads * count));
  std::vector<AttentionRow> rows;
  for (const int position : positions) rows.push_back({cache.layer(), position});
  auto* const places = reinterpret_cast<int32_t*>(chosen.data());
  backend.choose_blocks(
      {places, rows.data(), device_queries.data(), n, of.heads, of.head_dim, of.block_size, of.blocks, of.local_blocks});
  for (int i = 0; i < n * of.heads; ++i) {
    const std::vector<int32_t> got(places + i * count, places + (i + 1) * count);
    const int position = positions[static_cast<size_t>(i / of.heads)];
    const std::vector<int32_t> expected =
        position < count ? std::vector<int32_t>(static_cast<size_t>(count))
                         : reference_blocks(of, &queries[static_cast<size_t>(i * of.head_dim)], cache.plain_keys(), position);
    check(got == expected, "row " + std::to_string(i / of.heads) + ", head " + std::to_string(i % of.heads) + ", blocks of " +
                               std::to_string(of.block_size) + ": other positions are chosen");
  }
}

void chooses_blocks(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  const std::vector<int> positions = {3, 19, 20, 255, 256, 511, 40, 600, 601, 602, 699, 23, 24, 31, 32};
  for (const BlockIndexer& of :
       {BlockIndexer{1, 16, 8, 4, 1}, BlockIndexer{4, 128, 128, 2, 1}, BlockIndexer{3, 20, 7, 3, 0}, BlockIndexer{2, 33, 1, 5, 2},
        BlockIndexer{20, 300, 37, 4, 3}, BlockIndexer{2, 24, 300, 1, 1}, BlockIndexer{5, 12, 10, 2, 2}}) {
    const size_t count = positions.size() * static_cast<size_t>(of.heads * of.head_dim);
    chooses_in_blocks(*backend, of, positions, random_values(count, 66));
    chooses_in_blocks(*backend, of, positions, std::vector<float>(count, -0.0f));
    std::vector<float> wild = random_values(count, 67);
    for (size_t i = 0; i < count; i += 97) wild[i] = i % 2 == 0 ? INFINITY : -INFINITY;
    chooses_in_blocks(*backend, of, positions, wild);
  }
  check_refused(ErrorCode::model_unsupported, [&] {
    chooses_in_blocks(*backend, {1, 1025, 2, 1, 1}, {5}, std::vector<float>(1025));
  });
}

}  // namespace

void add_attention_cases(std::vector<Case>& cases) {
  cases.push_back({"attention: grows its scratch within the budget", grows_scratch_within_the_budget});
  for (const std::string& set : instruction_sets()) {
    for (const int threads : {1, 2}) {
      cases.push_back({"attention " + set + ": equals the one arithmetic, " + std::to_string(threads) + " threads",
                       [=] { attends(set, threads); }});
      cases.push_back({"attention " + set + ": many heads over one, " + std::to_string(threads) + " threads",
                       [=] { attends_latents(set, threads); }});
      cases.push_back({"attention " + set + ": chooses positions, " + std::to_string(threads) + " threads",
                       [=] { chooses_positions(set, threads); }});
      cases.push_back({"attention " + set + ": chooses blocks, " + std::to_string(threads) + " threads",
                       [=] { chooses_blocks(set, threads); }});
      cases.push_back(
          {"attention " + set + ": sinks, " + std::to_string(threads) + " threads", [=] { attends_with_sinks(set, threads); }});
    }
    cases.push_back({"attention " + set + ": ignores the future", [=] { ignores_the_future(set); }});
    cases.push_back({"attention " + set + ": close to double precision", [=] { close_to_double(set); }});
    cases.push_back({"attention " + set + ": counts its scratch", [=] { counts_scratch(set); }});
  }
}

}  // namespace odmoe::test
