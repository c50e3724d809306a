// What a recurrent layer keeps of a sequence: its state behind the last position that ran, an older state (the checkpoint), and the rows
// from the checkpoint on. Positions are taken back by running the rows behind the checkpoint again. Sequences may share states and blocks of
// rows until one of them writes there. Whoever owns it guards it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "odmoe/backend.h"
#include "odmoe/model_shape.h"
#include "odmoe/sequence_memory.h"

namespace odmoe {

// Positions before the last pass that can be taken back with it.
inline constexpr int kTakenBackPositions = 32;
// The checkpoint moves on by so many positions at a time, and so many rows stand in one block of memory.
inline constexpr int kCheckpointStep = 32;
// Empty blocks that are kept for the rows to come.
inline constexpr size_t kSpareLogBlocks = 2;

class RecurrenceLog {
 public:
  RecurrenceLog(std::shared_ptr<SequenceMemory> memory, const DeltaMixer& mixer);
  RecurrenceLog(std::shared_ptr<SequenceMemory> memory, const ConvolutionMixer& mixer, int64_t hidden_size);

  int64_t row_floats() const { return row_floats_; }
  int written() const { return written_; }
  void set_written(int end) { written_ = end; }

  // Shares what the first `length` positions need: no fewer than the checkpoint has, or none.
  RecurrenceLog fork(int length) const;

  // States and blocks of its own for rows [position, end), those from the checkpoint to `position` being written: all or nothing.
  // Returns what has changed, for put_back(). Throws DEVICE_OUT_OF_MEMORY.
  std::vector<ReplacedPiece> reserve(int position, int end);
  void put_back(std::vector<ReplacedPiece>& replaced) noexcept;
  // What reserve() would take; for a position before the checkpoint, after truncate(0).
  uint64_t bytes_to_write(int position, int end) const;
  // Rows that are written and not before the checkpoint.
  void read(int position, int rows, std::span<uint8_t> out) const;
  // Into memory that is reserved. The state is made anew where the rows come before it.
  void write(int position, int rows, std::span<const uint8_t> in);
  // Forgets positions >= length, which is not before the checkpoint, or 0.
  void truncate(int length);

  // Whether rows < end can be run from `position` on. Not so once the sequence has been cut back, has gone on far, or has been forked
  // since reserve().
  bool holds(int position, int end) const;
  // For the layer's operators. A row's place holds the rows behind it as far as row_run says.
  float* row(int position);
  static int row_run(int position) { return kCheckpointStep - position % kCheckpointStep; }
  // [convolution's tail | state of the delta rule].
  float* state() { return states_.floats(); }
  float* checkpoint_state() { return states_.floats() + state_floats(); }
  int64_t tail_floats() const { return tail_floats_; }
  int64_t state_floats() const { return tail_floats_ + rule_floats_; }
  // Position behind the rows that have made the state; kUnknown while it is being changed, and where it has to be made anew.
  static constexpr int kUnknown = -1;
  int state_position() const { return state_position_; }
  void set_state_position(int position) { state_position_ = position; }
  int checkpoint() const { return checkpoint_; }
  // The rows of kCheckpointStep positions have been run through the checkpoint's state and are forgotten.
  void move_checkpoint();

 private:
  static constexpr int kStates = -1;  // among the places of reserve()

  RecurrenceLog(std::shared_ptr<SequenceMemory> memory, int64_t row_floats, int64_t tail_floats, int64_t rule_floats);
  // A convolution of one tap has no state; memory of no bytes would count as none.
  uint64_t states_bytes() const { return float_bytes(std::max<int64_t>(1, 2 * state_floats())); }
  uint64_t block_bytes() const { return float_bytes(row_floats_ * kCheckpointStep); }
  // Those of rows from the checkpoint to `end` that are missing, and of rows [position, end) that are shared.
  std::vector<int> blocks_to_take(int position, int end) const;
  bool states_to_take() const { return states_.empty() || states_.shared(); }
  std::vector<SpacedRows> places(int position, int rows) const;

  std::shared_ptr<SequenceMemory> memory_;
  int64_t row_floats_;
  int64_t tail_floats_;
  int64_t rule_floats_;
  SequencePiece states_;
  std::map<int, SequencePiece> blocks_;  // by position / kCheckpointStep
  std::vector<SequencePiece> spare_;     // shared with nobody
  int checkpoint_ = 0;                   // a multiple of kCheckpointStep
  int state_position_ = 0;
  int written_ = 0;
};

}  // namespace odmoe
