#include "chosen_blocks.h"

#include <algorithm>
#include <vector>

#include "chosen_positions.h"

namespace odmoe {
namespace {

struct IndexRows {
  float* queries;
  float* keys;
};

void normalize(Backend& backend, const Vectors& vectors, const float* weight, float epsilon) {
  backend.normalize(
      {.out = vectors, .in = vectors, .weight = weight, .divisor = static_cast<float>(vectors.size), .epsilon = epsilon});
}

void project(PassState& pass, const AttentionMixer& mixer, const DenseWeights& weights, const IndexRows& rows) {
  const BlockIndexerShape& indexer = *mixer.block_indexer;
  const int n = pass.count();
  const int dim = indexer.head_dim;
  const int64_t query_size = int64_t{mixer.kv_heads} * dim;
  const float* const in = pass.normed.floats();
  const Product products[] = {
      {rows.queries, query_size, &weights.matrix(DenseRole::index_query), in, pass.hidden(), n},
      {rows.keys, dim, &weights.matrix(DenseRole::index_key), in, pass.hidden(), n},
  };
  Backend& backend = pass.backend();
  backend.multiply(products, 2);
  const Vectors queries{rows.queries, query_size, dim, n, mixer.kv_heads, dim};
  const Vectors keys{rows.keys, dim, dim, n, 1, dim};
  normalize(backend, queries, weights.vector(DenseRole::index_query_norm), indexer.norm_epsilon);
  normalize(backend, keys, weights.vector(DenseRole::index_key_norm), indexer.norm_epsilon);
  if (!indexer.rotary) return;
  const RopeAngles angles = pass.angles(indexer.rotary->rope);
  for (Vectors turned : {queries, keys}) {
    turned.first += indexer.rotary->offset;
    turned.size = 2 * angles.pairs;
    backend.rotate({turned, angles.cos, angles.sin, indexer.rotary->pairing});
  }
}

// Rows of which each key-value head attends by itself, over copies of its own chosen keys and values.
class GatheredRows {
 public:
  GatheredRows(PassState& pass, int first, int n, const BlockIndexerShape& indexer, const AttentionShape& shape)
      : pass_(pass), first_(first), n_(n), count_(static_cast<int>(indexer.positions())), shape_(shape) {
    const int64_t heads = int64_t{n} * shape.kv_heads;
    chosen_ = reinterpret_cast<const int32_t*>(pass.chosen_blocks.bytes()) + int64_t{first} * shape.kv_heads * count_;
    float* const keys = pass.gathered_keys.floats();
    float* const values = keys + heads * gathered_floats(count_, shape.head_dim);
    gather(keys, shape.head_dim, [](const KeyValueLayer& cache) { return cache.key_blocks; });
    gather(values, shape.value_dim, [](const KeyValueLayer& cache) { return cache.value_blocks; });
    key_lists_ = lists_of(keys, shape.head_dim);
    value_lists_ = lists_of(values, shape.value_dim);
    set_last_positions(indexer);
  }

  void attend(float* out, const float* queries) const {
    const auto blocks = static_cast<int64_t>(key_lists_.size()) / static_cast<int64_t>(last_positions_.size());
    std::vector<AttentionRow> rows;
    for (size_t i = 0; i < last_positions_.size(); i++) {
      const int64_t at = static_cast<int64_t>(i) * blocks;
      rows.push_back({{key_lists_.data() + at, value_lists_.data() + at}, last_positions_[i]});
    }
    AttentionShape one = shape_;
    one.heads = shape_.heads / shape_.kv_heads;
    one.kv_heads = 1;
    pass_.backend().attention(out, rows.data(), queries, int64_t{one.heads} * one.head_dim, static_cast<int>(rows.size()), one);
  }

 private:
  // Copies the chosen vectors of each row and head; blocks_of says which blocks of a cache hold them.
  template <typename BlocksOf>
  void gather(float* out, int size, BlocksOf blocks_of) const {
    std::vector<std::vector<float*>> lists;
    std::vector<AttentionRow> rows;
    for (int row = first_; row < first_ + n_; row++) {
      const AttentionRow& of = pass_.attention_rows[static_cast<size_t>(row)];
      float* const* const blocks = blocks_of(of.cache);
      for (int head = 0; head < shape_.kv_heads; head++) {
        std::vector<float*>& parts = lists.emplace_back();
        for (int block = 0; block <= of.position / kAttentionChunk; block++) {
          parts.push_back(blocks[block] + int64_t{head} * kAttentionChunk * size);
        }
        rows.push_back({{parts.data(), nullptr}, of.position});
      }
    }
    pass_.backend().gather_keys(out, rows.data(), chosen_, static_cast<int>(rows.size()), count_, size);
  }

  std::vector<float*> lists_of(float* first, int size) const {
    const int64_t blocks = int64_t{n_} * shape_.kv_heads * (gathered_floats(count_, size) / (int64_t{kAttentionChunk} * size));
    std::vector<float*> lists;
    for (int64_t block = 0; block < blocks; block++) lists.push_back(first + block * kAttentionChunk * size);
    return lists;
  }

  // The place of the last chosen position of each row and head: a block that reaches beyond the row's own position has fewer of them.
  void set_last_positions(const BlockIndexerShape& indexer) {
    const auto heads = static_cast<size_t>(n_ * shape_.kv_heads);
    std::vector<int32_t> chosen;
    if (indexer.local_blocks == 0) {
      // Nobody but the device knows whether the block of the row's own position is chosen.
      chosen.resize(heads * static_cast<size_t>(count_));
      pass_.backend().copy_to_host(chosen.data(), chosen_, chosen.size() * sizeof(int32_t));
    }
    for (size_t i = 0; i < heads; i++) {
      const int32_t position = pass_.positions[static_cast<size_t>(first_) + i / static_cast<size_t>(shape_.kv_heads)];
      const int in_block = position % indexer.block_size;
      const bool has_own = chosen.empty() || chosen[(i + 1) * static_cast<size_t>(count_) - 1] >= position - in_block;
      last_positions_.push_back(has_own ? count_ - indexer.block_size + in_block : count_ - 1);
    }
  }

  PassState& pass_;
  int first_;
  int n_;
  int count_;
  const AttentionShape& shape_;
  const int32_t* chosen_ = nullptr;
  std::vector<float*> key_lists_;
  std::vector<float*> value_lists_;
  std::vector<int32_t> last_positions_;
};

}  // namespace

int64_t block_scratch_floats(const AttentionMixer& mixer) {
  if (!mixer.block_indexer) return 0;
  return (int64_t{mixer.kv_heads} + 1) * mixer.block_indexer->head_dim + mixer.query_size();
}

void choose_blocks(PassState& pass, const AttentionMixer& mixer, const DenseWeights& weights, int layer, Scratch& scratch) {
  const BlockIndexerShape& indexer = *mixer.block_indexer;
  const int n = pass.count();
  IndexRows rows{};
  rows.queries = scratch.take(int64_t{n} * mixer.kv_heads * indexer.head_dim);
  rows.keys = scratch.take(int64_t{n} * indexer.head_dim);
  project(pass, mixer, weights, rows);
  std::vector<AttentionRow> caches;
  for (size_t i = 0; i < pass.positions.size(); i++) {
    caches.push_back({pass.row_sequences[i]->index_cache(layer), pass.positions[i]});
  }
  AttentionShape keys;
  keys.heads = 1;
  keys.kv_heads = 1;
  keys.head_dim = indexer.head_dim;
  keys.values_in_keys = true;
  pass.backend().store_key_values(caches.data(), rows.keys, nullptr, indexer.head_dim, n, keys);
  const bool sees_all =
      std::none_of(caches.begin(), caches.end(), [&](const AttentionRow& row) { return row.position >= indexer.positions(); });
  if (sees_all) return;
  pass.backend().choose_blocks({.chosen = reinterpret_cast<int32_t*>(pass.chosen_blocks.bytes()),
                                .host_rows = caches.data(),
                                .queries = rows.queries,
                                .n = n,
                                .heads = mixer.kv_heads,
                                .head_dim = indexer.head_dim,
                                .block_size = indexer.block_size,
                                .blocks = indexer.blocks,
                                .local_blocks = indexer.local_blocks});
}

void attend_blocks(PassState& pass, float* out, float* queries, int64_t stride, const BlockIndexerShape& indexer,
                   const AttentionShape& shape, Scratch& scratch) {
  const int n = pass.count();
  const int64_t width = int64_t{shape.heads} * shape.value_dim;
  const int64_t query_size = int64_t{shape.heads} * shape.head_dim;
  const auto is_long = [&](int row) { return pass.positions[static_cast<size_t>(row)] >= indexer.positions(); };
  float* const packed = scratch.take(n * query_size);
  const auto whole = [&](float* first, int64_t step) { return Vectors{first, step, 0, n, 1, static_cast<int>(query_size)}; };
  bool is_packed = false;
  for (int first = 0; first < n;) {
    const bool chooses = is_long(first);
    int end = first + 1;
    while (end < n && is_long(end) == chooses && (!chooses || end - first < kGatheredRows)) end++;
    if (chooses) {
      // Heads that attend by themselves have queries at one distance.
      if (!is_packed) pass.backend().copy_vectors(whole(packed, query_size), whole(queries, stride));
      is_packed = true;
      GatheredRows(pass, first, end - first, indexer, shape).attend(out + first * width, packed + first * query_size);
    } else {
      pass.backend().attention(out + first * width, pass.attention_rows.data() + first, queries + first * stride, stride,
                               end - first, shape);
    }
    first = end;
  }
}

}  // namespace odmoe
