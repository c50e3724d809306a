// Attention whose rows see only blocks of positions that an indexer has chosen (MiniMax-M3's sparse attention).
#pragma once
#include <cstdint>

#include "pass_state.h"

namespace odmoe {

// Floats of scratch a row; 0 without an indexer.
int64_t block_scratch_floats(const AttentionMixer& mixer);

// Stores the rows' index keys and chooses blocks for the rows that have more positions than they see. The pass's attention rows must
// be set.
void choose_blocks(PassState& pass, const AttentionMixer& mixer, const DenseWeights& weights, int layer, Scratch& scratch);

// Attention of all rows, each over the positions that it sees. Keys and values have been stored.
void attend_blocks(PassState& pass, float* out, float* queries, int64_t stride, const BlockIndexerShape& indexer,
                   const AttentionShape& shape, Scratch& scratch);

}  // namespace odmoe
