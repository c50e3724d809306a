// Entries of pools of positions, and attention to them.
#pragma once
#include <cstdint>
#include <vector>

#include "pass_state.h"

namespace odmoe {

// Rows whose keys are gathered at a time.
inline constexpr int kSeenRows = 4;

// Device memory of a pass for this.
struct PoolNeeds {
  PoolNeeds(const ModelShape& shape, int max_rows);

  int64_t seen_floats = 0;
  int64_t chosen_entries = 0;  // of all rows
  int64_t index_floats = 0;
  int64_t angle_floats = 0;
  bool undoes_rotations = false;
};

// One for each rope and size of pools that the model's layers have, without rows; only the number of pairs of their angles is set.
std::vector<PoolRows> pool_kinds(const ModelShape& shape);

// Finds the rows of the pass that end pools, and sends the angles of the pools' first positions. Rows and positions of the pass must be set.
void begin_pools(PassState& pass);

// Floats of scratch a row, without those of the queries.
int64_t pool_scratch_floats(const PooledMixer& mixer);

// Makes the entries of the pools that the rows end, for the layer and for its indexer, and stores them. The rows' values and gates must have been
// stored, and the pass's attention rows be set.
void add_entries(PassState& pass, const PooledMixer& mixer, const DenseWeights& weights, Scratch& scratch);

// Has the layer's indexer choose entries for the rows that have more than they see. low: the normed low-rank queries. Returns false where all
// rows see all entries.
bool choose_entries(PassState& pass, const PooledMixer& mixer, const DenseWeights& weights, const float* low, Scratch& scratch);

// Vectors of a cache by themselves, as store_key_values takes keys.
AttentionShape vectors_alone(int count, int size);

inline int64_t complete_pools(int pool_positions, int position) { return (int64_t{position} + 1) / pool_positions; }

// Copies the entries of a sequence's pools up to a position, which stand at the last positions of the pools, as the keys of a cache of their own.
std::vector<float*> gather_entries(PassState& pass, float* const* blocks, int position, int size, int pool_positions);

// Attention of the rows of `seen` over copies of what they see. seen: all but the stride of its `out`. queries and `out`: of the first of the rows.
void attend_copies(PassState& pass, SeenWork seen, float* out, const float* queries, int64_t stride, const AttentionShape& shape);

// Attention of all rows to the entries and positions that they see. queries: rows x heads x head_dim, one behind another, as `out`.
void attend_seen(PassState& pass, const PooledMixer& mixer, float* out, const float* queries, const AttentionShape& shape,
                 bool chooses);

}  // namespace odmoe
