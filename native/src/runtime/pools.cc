#include "pools.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "odmoe/error.h"
#include "rope.h"

namespace odmoe {
namespace {

// Lists of the blocks of the caches of a pass's rows, every block's address moved by some floats.
class MovedBlocks {
 public:
  explicit MovedBlocks(const PassState& pass) {
    for (const AttentionRow& row : pass.attention_rows) {
      int& furthest = furthest_[row.cache.key_blocks];
      furthest = std::max(furthest, row.position);
    }
  }

  // The list stays where it is as long as this object lives.
  float* const* at(float* const* blocks, int64_t floats) {
    const auto [list, is_new] = lists_.try_emplace({blocks, floats});
    if (is_new) {
      for (int block = 0; block <= furthest_.at(blocks) / kAttentionChunk; block++) list->second.push_back(blocks[block] + floats);
    }
    return list->second.data();
  }

 private:
  std::map<float* const*, int> furthest_;
  std::map<std::pair<float* const*, int64_t>, std::vector<float*>> lists_;
};

// The planes of a layer's pools, or of its indexer's pools, in a block of the cache.
struct Planes {
  Planes(const PoolsShape& pools, int of_size, int64_t floats_before)
      : size(of_size),
        first(floats_before * kAttentionChunk),
        own(first + int64_t{pools.parts() - 1} * of_size * kAttentionChunk) {}

  int size;
  int64_t first;
  int64_t own;  // of own values, and of entries
};

Planes layer_planes(const PooledMixer& mixer) { return {*mixer.pools, mixer.head_dim, mixer.head_dim}; }

Planes index_planes(const PooledMixer& mixer) {
  return {*mixer.pools, mixer.index_dim(), (1 + mixer.pool_vectors()) * int64_t{mixer.head_dim}};
}

void rotate(PassState& pass, float* first, const RotaryShape& rotary, const RopeAngles& angles, int rows, int heads, int64_t dim) {
  pass.backend().rotate(
      {{first + rotary.offset, heads * dim, dim, rows, heads, 2 * angles.pairs}, angles.cos, angles.sin, rotary.pairing});
}

struct EntryWeights {
  const float* gate_biases;
  const float* norm;
  RotaryShape rotary;
};

// entries: scratch for one of each row.
void add_entries_of(PassState& pass, const PooledMixer& mixer, const Planes& planes, const EntryWeights& weights, float* entries) {
  const PoolsShape& pools = *mixer.pools;
  const PoolRows& ending = pass.pool_rows(weights.rotary.rope, pools.positions);
  const auto n = static_cast<int>(ending.rows.size());
  if (n == 0) return;
  MovedBlocks blocks(pass);
  std::vector<AttentionRow> rows;
  for (const int32_t row : ending.rows) rows.push_back(pass.attention_rows[static_cast<size_t>(row)]);
  const auto move_to = [&](int64_t floats) {
    for (size_t i = 0; i < rows.size(); i++) {
      const AttentionRow& row = pass.attention_rows[static_cast<size_t>(ending.rows[i])];
      rows[i].cache = {blocks.at(row.cache.key_blocks, floats), nullptr};
    }
  };
  Backend& backend = pass.backend();
  move_to(planes.first);
  backend.pool({entries, rows.data(), weights.gate_biases, n, planes.size, pools.positions, pools.overlaps});
  const Vectors vectors{entries, planes.size, 0, n, 1, planes.size};
  backend.normalize({.out = vectors,
                     .in = vectors,
                     .weight = weights.norm,
                     .divisor = static_cast<float>(planes.size),
                     .epsilon = mixer.norm_epsilon});
  rotate(pass, entries, weights.rotary, ending.angles, n, 1, planes.size);
  move_to(planes.own);
  backend.store_key_values(rows.data(), entries, nullptr, planes.size, n, vectors_alone(1, planes.size));
}

// The values and gates of the rows for the indexer's pools.
void store_index_vectors(PassState& pass, const PooledMixer& mixer, const DenseWeights& weights, float* vectors) {
  const int n = pass.count();
  const int count = mixer.index_vectors();
  const int64_t stride = int64_t{count} * mixer.index_dim();
  const float* const in = pass.normed.floats();
  const Product products[] = {
      {vectors, stride, &weights.matrix(DenseRole::index_pool_value), in, pass.hidden(), n},
      {vectors + stride / 2, stride, &weights.matrix(DenseRole::index_pool_gate), in, pass.hidden(), n},
  };
  pass.backend().multiply(products, 2);
  std::vector<AttentionRow> rows = pass.attention_rows;
  // They stand behind all vectors of the layer itself.
  for (AttentionRow& row : rows) row.cache = {row.cache.value_blocks, nullptr};
  pass.backend().store_key_values(rows.data(), vectors, nullptr, stride, n, vectors_alone(count, mixer.index_dim()));
}

// Entries that a row can see at most.
int most_entries(const PooledMixer& mixer, int max_positions) {
  const int all = max_positions / mixer.pools->positions;
  return mixer.pools->indexer ? std::min(mixer.pools->indexer->entries, all) : all;
}

}  // namespace

AttentionShape vectors_alone(int count, int size) {
  AttentionShape shape;
  shape.heads = count;
  shape.kv_heads = count;
  shape.head_dim = size;
  shape.values_in_keys = true;
  return shape;
}

PoolNeeds::PoolNeeds(const ModelShape& shape, int max_rows) {
  for (const LayerShape& layer : shape.layers) {
    const auto* const mixer = std::get_if<PooledMixer>(&layer.mixer);
    if (mixer == nullptr) continue;
    undoes_rotations = true;
    if (!mixer->pools) continue;
    const int64_t all = shape.max_positions / mixer->pools->positions;
    const int64_t entries = most_entries(*mixer, shape.max_positions);
    const int64_t seen = entries + std::min(mixer->window, shape.max_positions);
    seen_floats = std::max(seen_floats, std::min(max_rows, kSeenRows) * gathered_floats(seen, mixer->head_dim));
    if (entries == all) continue;
    chosen_entries = std::max(chosen_entries, max_rows * entries);
    index_floats = std::max(index_floats, gathered_floats(all, mixer->index_dim()));
  }
  for (const PoolRows& kind : pool_kinds(shape)) angle_floats += int64_t{2} * max_rows * kind.angles.pairs;
}

std::vector<PoolRows> pool_kinds(const ModelShape& shape) {
  std::vector<PoolRows> kinds;
  const auto add = [&](int rope, int positions) {
    const bool is_known = std::any_of(kinds.begin(), kinds.end(),
                                      [&](const PoolRows& kind) { return kind.rope == rope && kind.positions == positions; });
    if (is_known) return;
    PoolRows& kind = kinds.emplace_back();
    kind.rope = rope;
    kind.positions = positions;
    kind.angles.pairs = static_cast<int>(shape.ropes[static_cast<size_t>(rope)].frequencies.size());
  };
  for (const LayerShape& layer : shape.layers) {
    const auto* const mixer = std::get_if<PooledMixer>(&layer.mixer);
    if (mixer == nullptr || !mixer->pools) continue;
    add(mixer->rotary.rope, mixer->pools->positions);
    if (mixer->pools->indexer) add(mixer->pools->indexer->rotary.rope, mixer->pools->positions);
  }
  return kinds;
}

void begin_pools(PassState& pass) {
  float* next = pass.pools.empty() ? nullptr : pass.pool_angles.floats();
  for (PoolRows& kind : pass.pools) {
    const auto pairs = static_cast<size_t>(kind.angles.pairs);
    const RopeShape& rope = pass.shape().ropes[static_cast<size_t>(kind.rope)];
    kind.angles.cos = next;
    kind.angles.sin = next + int64_t{pass.max_rows} * kind.angles.pairs;
    next = kind.angles.sin + int64_t{pass.max_rows} * kind.angles.pairs;
    kind.rows.clear();
    std::vector<float> cos;
    std::vector<float> sin;
    for (size_t row = 0; row < pass.positions.size(); row++) {
      const int end = pass.positions[row] + 1;
      if (end % kind.positions != 0) continue;
      kind.rows.push_back(static_cast<int32_t>(row));
      cos.resize(cos.size() + pairs);
      sin.resize(sin.size() + pairs);
      rope_row(end - kind.positions, rope, &cos[cos.size() - pairs], &sin[sin.size() - pairs]);
    }
    if (kind.rows.empty()) continue;
    pass.backend().copy_to_device(kind.angles.cos, cos.data(), cos.size() * sizeof(float));
    pass.backend().copy_to_device(kind.angles.sin, sin.data(), sin.size() * sizeof(float));
  }
}

int64_t pool_scratch_floats(const PooledMixer& mixer) {
  if (!mixer.pools) return 0;
  const int64_t index_heads = mixer.pools->indexer ? mixer.pools->indexer->heads : 0;
  return mixer.head_dim + (mixer.index_vectors() + 1 + index_heads) * int64_t{mixer.index_dim()} + index_heads;
}

void add_entries(PassState& pass, const PooledMixer& mixer, const DenseWeights& weights, Scratch& scratch) {
  const int n = pass.count();
  const EntryWeights own{weights.vector(DenseRole::pool_gate_bias), weights.vector(DenseRole::pool_norm), mixer.rotary};
  add_entries_of(pass, mixer, layer_planes(mixer), own, scratch.take(n * int64_t{mixer.head_dim}));
  if (!mixer.pools->indexer) return;
  store_index_vectors(pass, mixer, weights, scratch.take(n * int64_t{mixer.index_vectors()} * mixer.index_dim()));
  const EntryWeights of_index{weights.vector(DenseRole::index_pool_gate_bias), weights.vector(DenseRole::index_pool_norm),
                              mixer.pools->indexer->rotary};
  add_entries_of(pass, mixer, index_planes(mixer), of_index, scratch.take(n * int64_t{mixer.index_dim()}));
}

bool choose_entries(PassState& pass, const PooledMixer& mixer, const DenseWeights& weights, const float* low, Scratch& scratch) {
  if (!mixer.pools->indexer) return false;
  const PoolIndexerShape& indexer = *mixer.pools->indexer;
  const auto sees_all = [&](int position) { return complete_pools(mixer.pools->positions, position) <= indexer.entries; };
  if (std::all_of(pass.positions.begin(), pass.positions.end(), sees_all)) return false;
  const int n = pass.count();
  const int64_t query_size = int64_t{indexer.heads} * indexer.head_dim;
  float* const queries = scratch.take(n * query_size);
  float* const head_weights = scratch.take(n * int64_t{indexer.heads});
  const Product products[] = {
      {queries, query_size, &weights.matrix(DenseRole::index_query), low, mixer.query_rank, n},
      {head_weights, indexer.heads, &weights.matrix(DenseRole::index_weights), pass.normed.floats(), pass.hidden(), n},
  };
  pass.backend().multiply(products, 2);
  rotate(pass, queries, indexer.rotary, pass.angles(indexer.rotary.rope), n, indexer.heads, indexer.head_dim);
  auto* const chosen = reinterpret_cast<int32_t*>(pass.chosen_entries.bytes());
  for (const SequenceRun& run : pass.runs) {
    const AttentionRow& last = pass.attention_rows[static_cast<size_t>(run.first_row + run.rows - 1)];
    if (sees_all(last.position)) continue;
    MovedBlocks blocks(pass);
    float* const* const entries = blocks.at(last.cache.key_blocks, index_planes(mixer).own);
    const std::vector<float*> keys = gather_entries(pass, entries, last.position, mixer.index_dim(), mixer.pools->positions);
    std::vector<AttentionRow> rows;
    for (int row = 0; row < run.rows; row++) {
      rows.push_back(
          {{keys.data(), nullptr}, static_cast<int32_t>(complete_pools(mixer.pools->positions, run.position + row)) - 1});
    }
    pass.backend().choose_positions({.chosen = chosen + int64_t{run.first_row} * indexer.entries,
                                     .host_rows = rows.data(),
                                     .queries = queries + run.first_row * query_size,
                                     .weights = head_weights + int64_t{run.first_row} * indexer.heads,
                                     .n = run.rows,
                                     .heads = indexer.heads,
                                     .head_dim = indexer.head_dim,
                                     .count = indexer.entries});
  }
  return true;
}

std::vector<float*> gather_entries(PassState& pass, float* const* blocks, int position, int size, int pool_positions) {
  const AttentionRow row{{blocks, blocks}, position};
  SeenWork seen;
  seen.out = pass.index_entries.floats();
  seen.host_rows = &row;
  seen.n = 1;
  seen.size = size;
  seen.positions = pool_positions;
  seen.entries = static_cast<int>(complete_pools(pool_positions, position));
  pass.backend().gather_seen(seen);
  std::vector<float*> gathered;
  for (int entry = 0; entry < seen.entries; entry += kAttentionChunk) gathered.push_back(seen.out + int64_t{entry} * size);
  return gathered;
}

void attend_copies(PassState& pass, SeenWork seen, float* out, const float* queries, int64_t stride, const AttentionShape& shape) {
  seen.out_stride = gathered_floats(seen_room(seen, seen.furthest()), seen.size);
  pass.backend().gather_seen(seen);
  const int64_t block_floats = int64_t{kAttentionChunk} * seen.size;
  const int64_t row_blocks = seen.out_stride / block_floats;
  std::vector<float*> lists;
  for (int64_t block = 0; block < seen.n * row_blocks; block++) lists.push_back(seen.out + block * block_floats);
  std::vector<AttentionRow> rows;
  for (int row = 0; row < seen.n; row++) {
    const auto vectors = static_cast<int32_t>(most_seen(seen, seen.host_rows[row].position));
    rows.push_back({{lists.data() + row * row_blocks, nullptr}, vectors - 1});
  }
  pass.backend().attention(out, rows.data(), queries, stride, seen.n, shape);
}

void attend_seen(PassState& pass, const PooledMixer& mixer, float* out, const float* queries, const AttentionShape& shape,
                 bool chooses) {
  const int64_t width = mixer.query_size();
  const Planes planes = layer_planes(mixer);
  MovedBlocks blocks(pass);
  std::vector<AttentionRow> sources = pass.attention_rows;
  for (AttentionRow& row : sources) row.cache.value_blocks = blocks.at(row.cache.key_blocks, planes.own);
  SeenWork seen;
  seen.out = pass.seen_vectors.floats();
  seen.size = mixer.head_dim;
  seen.positions = mixer.pools->positions;
  seen.entries = most_entries(mixer, pass.shape().max_positions);
  seen.window = mixer.window;
  for (int first = 0; first < pass.count(); first += kSeenRows) {
    seen.host_rows = sources.data() + first;
    seen.n = std::min(kSeenRows, pass.count() - first);
    if (chooses) seen.chosen = reinterpret_cast<const int32_t*>(pass.chosen_entries.bytes()) + int64_t{first} * seen.entries;
    attend_copies(pass, seen, out + first * width, queries + first * width, width, shape);
  }
}

}  // namespace odmoe
