// Latent attention whose rows see only the positions that an indexer has chosen (DeepSeek-V3.2's sparse attention).
#pragma once
#include <cstdint>

#include "pass_state.h"

namespace odmoe {

// Rows whose chosen keys are gathered at a time.
inline constexpr int kGatheredRows = 4;

// Device memory of a pass for this, and for chosen blocks; none where no row can have more positions than it sees.
struct ChosenNeeds {
  ChosenNeeds(const ModelShape& shape, int max_rows);

  int64_t chosen_positions = 0;  // of all rows
  int64_t block_positions = 0;   // of all rows, in chosen blocks
  int64_t gathered_floats = 0;
  int64_t index_floats = 0;  // of the keys of a sequence's pools

 private:
  void add_blocks(const AttentionMixer& mixer, int max_positions, int max_rows);
};

// Floats of scratch a row.
int64_t index_scratch_floats(const IndexerShape& indexer);

// Stores the rows' index keys and chooses positions for the rows that have more than they see; the choice stays for later layers that
// share it. queries: the normed low-rank queries, rows x query_rank. The pass's attention rows must be set.
void choose_positions(PassState& pass, const LatentMixer& mixer, const DenseWeights& weights, const float* queries,
                      Scratch& scratch);

// Attention of all rows, each over the positions that it sees. Keys have been stored.
void attend_chosen(PassState& pass, float* out, const float* queries, int64_t stride, const AttentionShape& shape);

}  // namespace odmoe
