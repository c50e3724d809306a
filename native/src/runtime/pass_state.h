// The shared state of a pass's steps: its rows and the device memory in which they work.
#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "odmoe/model.h"
#include "odmoe/pass.h"
#include "odmoe/sequence.h"

namespace odmoe {

// Cosines and sines of one rope: rows x pairs.
struct RopeAngles {
  float* cos = nullptr;
  float* sin = nullptr;
  int pairs = 0;
  float* undoing_sin = nullptr;  // negative sines, where rotations are undone; else null
};

// Rows of a pass that end pools of so many positions, with the cosines and sines of the pools' first positions.
struct PoolRows {
  int rope = 0;
  int positions = 0;
  std::vector<int32_t> rows;
  RopeAngles angles;
};

// Rows of one sequence that follow one another, in the pass and in position. The runs of one turn belong to different sequences; a
// sequence's later rows have a later turn.
struct SequenceRun {
  Sequence* sequence = nullptr;
  int first_row = 0;
  int rows = 0;
  int position = 0;
  int turn = 0;
};

// Hands out parts of device memory while a layer's mixer runs.
class Scratch {
 public:
  explicit Scratch(float* next) : next_(next) {}
  float* take(int64_t floats) {
    float* const taken = next_;
    next_ += (floats + kAlignment - 1) / kAlignment * kAlignment;
    return taken;
  }
  static constexpr int64_t kAlignment = 16;  // 64 bytes
  static constexpr int64_t kParts = 16;      // most parts of a mixer

 private:
  float* next_;
};

struct PassState {
  PassState(std::shared_ptr<Model> of, int max_rows, RouterAnswer answer);

  int count() const { return static_cast<int>(positions.size()); }
  Backend& backend() const { return model->backend(); }
  const ModelShape& shape() const { return model->shape(); }
  int hidden() const { return static_cast<int>(model->shape().hidden_size); }
  int expert_row() const { return static_cast<int>(model->shape().expert_row_size()); }
  // Rows of hidden_size floats one behind another.
  Vectors rows_of(float* first) const { return {first, hidden(), 0, count(), 1, hidden()}; }
  RopeAngles angles(int rope) const;
  const PoolRows& pool_rows(int rope, int positions) const;
  Scratch scratch() const { return Scratch(mixer_scratch.floats()); }

  std::shared_ptr<Model> model;
  int max_rows;
  RouterAnswer router_answer;
  DeviceMemory residual;          // rows x hidden; with residual streams what the next part takes of them
  DeviceMemory streams;           // rows x streams x hidden, where the residual is streams
  DeviceMemory normed_streams;    // for kExpertTileRows rows
  DeviceMemory stream_weights;    // rows x StreamsShape::values(), of the part that runs
  DeviceMemory weights_ahead;     // the same, of a router that is asked ahead
  DeviceMemory normed;            // rows x hidden: input of a mixer or a feed-forward part
  DeviceMemory branch;            // rows x hidden: its output
  DeviceMemory mixer_scratch;     // as large as the largest need of a mixer
  DeviceMemory chosen_positions;  // rows x chosen_count integers (or pools of positions), where layers have indexers
  DeviceMemory chosen_blocks;     // integers: the positions of chosen blocks, for rows x key-value heads, of one layer
  DeviceMemory gathered_keys;     // the keys (and values) at chosen positions, of some rows
  DeviceMemory rope_angles;       // for each rope max_rows x pairs cosines, then equally many sines
  DeviceMemory undoing_sines;     // for each rope as many negative sines, where rotations are undone
  DeviceMemory pool_angles;       // likewise cosines and sines, for each of `pools`
  DeviceMemory seen_vectors;      // what some rows of attention to pools see
  DeviceMemory chosen_entries;    // rows x the indexer's entries, integers
  DeviceMemory index_entries;     // the indexer's entries of a sequence
  DeviceMemory query_factors;     // rows x query_floats, each row one factor over and over, where queries are scaled
  int64_t query_floats = 0;       // of the largest query head of latent attention
  DeviceMemory routed_input;      // rows x hidden, where experts have their own norm
  DeviceMemory router_input;      // rows x hidden, where the router has its own norm
  DeviceMemory latent_rows;       // rows x expert rows, where experts have a size of their own: their input, then their sum
  DeviceMemory router_logits;     // rows x experts
  DeviceMemory given_experts;     // rows x k integers, where layers choose experts by token
  DeviceMemory expert_outputs;    // rows x k x hidden
  DeviceMemory always_gate_up;    // for kExpertTileRows rows
  DeviceMemory always_activation;
  DeviceMemory always_output;     // rows x hidden
  DeviceMemory always_gates;      // rows
  DeviceMemory logits;            // kLogitRows x vocab
  DeviceMemory draft_rows;        // rows x 2 hidden, of a draft head
  ExpertActivations activations;  // made by the first forward: passes without resident experts do not need them

  std::vector<Sequence*> row_sequences;  // valid while a Call lasts
  std::vector<int32_t> positions;
  std::vector<int32_t> token_ids;
  std::vector<AttentionRow> attention_rows;
  std::vector<SequenceRun> runs;
  std::vector<PoolRows> pools;  // one of each kind that the model has
  int turns = 0;
  bool queries_scaled = false;      // query_factors holds others than 1
  int chosen_count = 0;             // positions that a row sees, as the last indexer says; 0: no indexer has run
  int chosen_pool = 0;              // positions of the pools among which it chose; 0: it chose positions by themselves
  bool always_done = false;         // the always part of the layer whose experts run is done
  std::exception_ptr always_error;  // the error of the always part
};

}  // namespace odmoe
