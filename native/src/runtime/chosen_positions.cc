#include "chosen_positions.h"

#include <algorithm>
#include <vector>

#include "odmoe/error.h"

namespace odmoe {
namespace {

struct IndexRows {
  float* queries;
  float* keys;
  float* weights;
};

void project(PassState& pass, const LatentMixer& mixer, const DenseWeights& weights, const float* low, const IndexRows& rows) {
  const IndexerShape& indexer = *mixer.indexer;
  const int n = pass.count();
  const int64_t query_size = int64_t{indexer.heads} * indexer.head_dim;
  const float* const in = pass.normed.floats();
  const Product products[] = {
      {rows.queries, query_size, &weights.matrix(DenseRole::index_query), low, mixer.query_rank, n},
      {rows.keys, indexer.head_dim, &weights.matrix(DenseRole::index_key), in, pass.hidden(), n},
      {rows.weights, indexer.heads, &weights.matrix(DenseRole::index_weights), in, pass.hidden(), n},
  };
  Backend& backend = pass.backend();
  backend.multiply(products, 3);
  backend.layer_norm(rows.keys, rows.keys, weights.vector(DenseRole::index_key_norm),
                     weights.vector(DenseRole::index_key_norm_bias), n, indexer.head_dim, indexer.norm_epsilon);
  const RopeAngles angles = pass.angles(indexer.rotary.rope);
  const auto rotate = [&](float* first, int heads) {
    const int64_t dim = indexer.head_dim;
    backend.rotate({{first + indexer.rotary.offset, heads * dim, dim, n, heads, 2 * angles.pairs},
                    angles.cos,
                    angles.sin,
                    indexer.rotary.pairing});
  };
  rotate(rows.queries, indexer.heads);
  rotate(rows.keys, 1);
}

// Rows that attend over copies of their chosen keys.
void attend_gathered(PassState& pass, float* out, const float* queries, int64_t stride, int first, int n,
                     const AttentionShape& shape) {
  const int count = pass.chosen_count;
  const int64_t row_floats = gathered_floats(count, shape.head_dim);
  float* const gathered = pass.gathered_keys.floats();
  pass.backend().gather_keys(gathered, pass.attention_rows.data() + first,
                             reinterpret_cast<const int32_t*>(pass.chosen_positions.bytes()) + int64_t{first} * count, n, count,
                             shape.head_dim);
  const int64_t blocks = row_floats / (int64_t{kAttentionChunk} * shape.head_dim);
  std::vector<float*> lists;
  for (int64_t block = 0; block < n * blocks; block++) {
    lists.push_back(gathered + block * kAttentionChunk * shape.head_dim);
  }
  std::vector<AttentionRow> rows;
  for (int row = 0; row < n; row++) rows.push_back({{lists.data() + row * blocks, nullptr}, count - 1});
  pass.backend().attention(out, rows.data(), queries, stride, n, shape);
}

}  // namespace

ChosenNeeds::ChosenNeeds(const ModelShape& shape, int max_rows) {
  int64_t most = 0;
  int key_size = 0;
  for (const LayerShape& layer : shape.layers) {
    if (const auto* const attention = std::get_if<AttentionMixer>(&layer.mixer)) {
      add_blocks(*attention, shape.max_positions, max_rows);
    }
    const auto* const latent = std::get_if<LatentMixer>(&layer.mixer);
    if (latent == nullptr || !(latent->indexer || latent->shares_indexer)) continue;
    key_size = std::max(key_size, latent->key_size());
    if (latent->indexer && latent->indexer->positions < shape.max_positions)
      most = std::max<int64_t>(most, latent->indexer->positions);
  }
  chosen_positions = max_rows * most;
  gathered_floats = std::max(gathered_floats, std::min(max_rows, kGatheredRows) * odmoe::gathered_floats(most, key_size));
}

void ChosenNeeds::add_blocks(const AttentionMixer& mixer, int max_positions, int max_rows) {
  if (!mixer.block_indexer || mixer.block_indexer->positions() >= max_positions) return;
  const int64_t positions = mixer.block_indexer->positions();
  block_positions = std::max(block_positions, int64_t{max_rows} * mixer.kv_heads * positions);
  const int64_t head_floats =
      odmoe::gathered_floats(positions, mixer.head_dim) + odmoe::gathered_floats(positions, mixer.value_head());
  gathered_floats = std::max(gathered_floats, std::min(max_rows, kGatheredRows) * mixer.kv_heads * head_floats);
}

int64_t index_scratch_floats(const IndexerShape& indexer) {
  return (int64_t{indexer.heads} + 1) * indexer.head_dim + indexer.heads;
}

void choose_positions(PassState& pass, const LatentMixer& mixer, const DenseWeights& weights, const float* queries,
                      Scratch& scratch) {
  const IndexerShape& indexer = *mixer.indexer;
  const int n = pass.count();
  IndexRows rows{};
  rows.queries = scratch.take(int64_t{n} * indexer.heads * indexer.head_dim);
  rows.keys = scratch.take(int64_t{n} * indexer.head_dim);
  rows.weights = scratch.take(int64_t{n} * indexer.heads);
  project(pass, mixer, weights, queries, rows);
  std::vector<AttentionRow> caches = pass.attention_rows;
  for (AttentionRow& row : caches) row.cache = {row.cache.value_blocks, nullptr};
  AttentionShape keys;
  keys.heads = 1;
  keys.kv_heads = 1;
  keys.head_dim = indexer.head_dim;
  keys.values_in_keys = true;
  pass.backend().store_key_values(caches.data(), rows.keys, nullptr, indexer.head_dim, n, keys);
  pass.chosen_count = indexer.positions;
  const bool sees_all =
      std::none_of(caches.begin(), caches.end(), [&](const AttentionRow& row) { return row.position >= indexer.positions; });
  if (sees_all) return;
  pass.backend().choose_positions({.chosen = reinterpret_cast<int32_t*>(pass.chosen_positions.bytes()),
                                   .host_rows = caches.data(),
                                   .queries = rows.queries,
                                   .weights = rows.weights,
                                   .n = n,
                                   .heads = indexer.heads,
                                   .head_dim = indexer.head_dim,
                                   .count = indexer.positions});
}

void attend_chosen(PassState& pass, float* out, const float* queries, int64_t stride, const AttentionShape& shape) {
  if (pass.chosen_count == 0) throw Error(ErrorCode::internal, "no layer before this one has chosen positions");
  const int64_t width = int64_t{shape.heads} * shape.value_dim;
  const auto is_long = [&](int row) { return pass.positions[static_cast<size_t>(row)] >= pass.chosen_count; };
  for (int first = 0; first < pass.count();) {
    const bool chooses = is_long(first);
    int end = first + 1;
    while (end < pass.count() && is_long(end) == chooses && (!chooses || end - first < kGatheredRows)) end++;
    const float* const in = queries + first * stride;
    if (chooses) {
      attend_gathered(pass, out + first * width, in, stride, first, end - first, shape);
    } else {
      pass.backend().attention(out + first * width, pass.attention_rows.data() + first, in, stride, end - first, shape);
    }
    first = end;
  }
}

}  // namespace odmoe
