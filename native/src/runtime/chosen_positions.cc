#include "chosen_positions.h"

#include <algorithm>
#include <vector>

#include "odmoe/error.h"
#include "pools.h"

namespace odmoe {
namespace {

struct IndexRows {
  float* queries;
  float* keys;
  float* weights;
  float* vectors;  // as the cache has them: the key, and with pools the gates; without pools this is `keys`
};

void rotate(PassState& pass, const IndexerShape& indexer, const IndexRows& rows) {
  const RopeAngles angles = pass.angles(indexer.rotary->rope);
  const int64_t dim = indexer.head_dim;
  const auto turn = [&](float* first, int heads) {
    const Vectors vectors{first + indexer.rotary->offset, heads * dim, dim, pass.count(), heads, 2 * angles.pairs};
    pass.backend().rotate({vectors, angles.cos, angles.sin, indexer.rotary->pairing});
  };
  turn(rows.queries, indexer.heads);
  turn(rows.keys, 1);
}

void project(PassState& pass, const LatentMixer& mixer, const DenseWeights& weights, const float* low, const IndexRows& rows) {
  const IndexerShape& indexer = *mixer.indexer;
  const int n = pass.count();
  const int64_t query_size = int64_t{indexer.heads} * indexer.head_dim;
  const float* const in = pass.normed.floats();
  std::vector<Product> products = {
      {rows.queries, query_size, &weights.matrix(DenseRole::index_query), low, mixer.query_rank, n},
      {rows.keys, indexer.head_dim, &weights.matrix(DenseRole::index_key), in, pass.hidden(), n},
      {rows.weights, indexer.heads, &weights.matrix(DenseRole::index_weights), in, pass.hidden(), n},
  };
  const int64_t stride = int64_t{indexer.vectors()} * indexer.head_dim;
  if (indexer.pool_positions > 0) {
    products.push_back(
        {rows.vectors + indexer.head_dim, stride, &weights.matrix(DenseRole::index_pool_gate), in, pass.hidden(), n});
  }
  Backend& backend = pass.backend();
  backend.multiply(products.data(), static_cast<int>(products.size()));
  backend.layer_norm(rows.keys, rows.keys, weights.vector(DenseRole::index_key_norm),
                     weights.vector(DenseRole::index_key_norm_bias), n, indexer.head_dim, indexer.norm_epsilon);
  if (indexer.rotary) rotate(pass, indexer, rows);
  if (rows.vectors == rows.keys) return;
  const Vectors keys{rows.keys, indexer.head_dim, 0, n, 1, indexer.head_dim};
  backend.copy_vectors({rows.vectors, stride, 0, n, 1, indexer.head_dim}, keys);
}

// Rows of the cache of an indexer: its vectors are the keys.
std::vector<AttentionRow> index_rows(const PassState& pass) {
  std::vector<AttentionRow> rows = pass.attention_rows;
  for (AttentionRow& row : rows) row.cache = {row.cache.value_blocks, nullptr};
  return rows;
}

// Makes the keys of the pools that rows end, and stores them in the place of the keys of their last positions. entries: scratch for one of each row.
void add_pool_keys(PassState& pass, const IndexerShape& indexer, const float* gate_biases, float* entries) {
  std::vector<AttentionRow> ending = index_rows(pass);
  std::erase_if(ending, [&](const AttentionRow& row) { return (row.position + 1) % indexer.pool_positions != 0; });
  const auto n = static_cast<int>(ending.size());
  if (n == 0) return;
  Backend& backend = pass.backend();
  backend.pool({entries, ending.data(), gate_biases, n, indexer.head_dim, indexer.pool_positions, false});
  backend.store_key_values(ending.data(), entries, nullptr, indexer.head_dim, n, vectors_alone(1, indexer.head_dim));
}

// Each sequence chooses among its own pools.
void choose_pools(PassState& pass, const IndexerShape& indexer, const IndexRows& rows) {
  auto* const chosen = reinterpret_cast<int32_t*>(pass.chosen_positions.bytes());
  for (const SequenceRun& run : pass.runs) {
    const int64_t first = run.first_row;
    const AttentionRow& last = pass.attention_rows[static_cast<size_t>(first + run.rows - 1)];
    if (complete_pools(indexer.pool_positions, last.position) <= indexer.choices()) continue;
    const std::vector<float*> keys =
        gather_entries(pass, last.cache.value_blocks, last.position, indexer.head_dim, indexer.pool_positions);
    std::vector<AttentionRow> choosing;
    for (int row = 0; row < run.rows; row++) {
      choosing.push_back(
          {{keys.data(), nullptr}, static_cast<int32_t>(complete_pools(indexer.pool_positions, run.position + row)) - 1});
    }
    pass.backend().choose_positions({.chosen = chosen + first * indexer.choices(),
                                     .host_rows = choosing.data(),
                                     .queries = rows.queries + first * indexer.heads * indexer.head_dim,
                                     .weights = rows.weights + first * indexer.heads,
                                     .n = run.rows,
                                     .heads = indexer.heads,
                                     .head_dim = indexer.head_dim,
                                     .count = indexer.choices()});
  }
}

// Rows that attend over copies of the keys of their chosen pools and of their own pool.
void attend_pools(PassState& pass, float* out, const float* queries, int64_t stride, int first, int n,
                  const AttentionShape& shape) {
  SeenWork seen;
  seen.out = pass.gathered_keys.floats();
  seen.host_rows = pass.attention_rows.data() + first;
  seen.n = n;
  seen.size = shape.head_dim;
  seen.positions = pass.chosen_pool;
  seen.entries = pass.chosen_count / pass.chosen_pool;
  seen.whole_pools = true;
  seen.chosen = reinterpret_cast<const int32_t*>(pass.chosen_positions.bytes()) + int64_t{first} * seen.entries;
  attend_copies(pass, seen, out, queries, stride, shape);
}

// True if a row at this position has more to see than the last indexer lets it.
bool chooses(const PassState& pass, int position) { return position >= pass.chosen_count + std::max(pass.chosen_pool, 1) - 1; }

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
    if (!latent->indexer || latent->indexer->positions >= shape.max_positions) continue;
    const IndexerShape& indexer = *latent->indexer;
    const int pool = std::max(indexer.pool_positions, 1);
    most = std::max<int64_t>(most, int64_t{indexer.positions} + pool - 1);
    if (indexer.pool_positions > 0) {
      index_floats = std::max(index_floats, odmoe::gathered_floats(shape.max_positions / pool, indexer.head_dim));
    }
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
  const int64_t of_pools = indexer.pool_positions > 0 ? int64_t{indexer.vectors()} + 1 : 0;
  return (indexer.heads + 1 + of_pools) * indexer.head_dim + indexer.heads;
}

void choose_positions(PassState& pass, const LatentMixer& mixer, const DenseWeights& weights, const float* queries,
                      Scratch& scratch) {
  const IndexerShape& indexer = *mixer.indexer;
  const int n = pass.count();
  IndexRows rows{};
  rows.queries = scratch.take(int64_t{n} * indexer.heads * indexer.head_dim);
  rows.keys = scratch.take(int64_t{n} * indexer.head_dim);
  rows.weights = scratch.take(int64_t{n} * indexer.heads);
  rows.vectors = rows.keys;
  const int64_t stride = int64_t{indexer.vectors()} * indexer.head_dim;
  if (indexer.pool_positions > 0) rows.vectors = scratch.take(n * stride);
  project(pass, mixer, weights, queries, rows);
  std::vector<AttentionRow> caches = index_rows(pass);
  pass.backend().store_key_values(caches.data(), rows.vectors, nullptr, stride, n,
                                  vectors_alone(indexer.vectors(), indexer.head_dim));
  if (indexer.pool_positions > 0) {
    float* const entries = scratch.take(int64_t{n} * indexer.head_dim);
    add_pool_keys(pass, indexer, weights.vector(DenseRole::index_pool_gate_bias), entries);
  }
  pass.chosen_count = indexer.positions;
  pass.chosen_pool = indexer.pool_positions;
  if (std::none_of(pass.positions.begin(), pass.positions.end(), [&](int position) { return chooses(pass, position); })) return;
  if (indexer.pool_positions > 0) {
    choose_pools(pass, indexer, rows);
    return;
  }
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
  const auto is_long = [&](int row) { return chooses(pass, pass.positions[static_cast<size_t>(row)]); };
  for (int first = 0; first < pass.count();) {
    const bool is_choosing = is_long(first);
    int end = first + 1;
    while (end < pass.count() && is_long(end) == is_choosing && (!is_choosing || end - first < kGatheredRows)) end++;
    const float* const in = queries + first * stride;
    if (is_choosing && pass.chosen_pool > 0) {
      attend_pools(pass, out + first * width, in, stride, first, end - first, shape);
    } else if (is_choosing) {
      attend_gathered(pass, out + first * width, in, stride, first, end - first, shape);
    } else {
      pass.backend().attention(out + first * width, pass.attention_rows.data() + first, in, stride, end - first, shape);
    }
    first = end;
  }
}

}  // namespace odmoe
