// The cache of a recurrent layer for a sequence: its state after the last position that ran, an older state that is saved,
// and the rows from the saved state on. To undo positions, the rows behind the saved state are run again. Sequences may share states
// and blocks of rows until one of them writes there. The owner of the object must lock it.
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

// Positions before the last pass that can be undone together with it.
inline constexpr int kTakenBackPositions = 32;
// Number of positions by which the saved state moves on, and number of rows in one block of memory.
inline constexpr int kSavedStateStep = 32;
// Most empty blocks that are retained for later rows.
inline constexpr size_t kSpareLogBlocks = 2;

class RecurrenceLog {
 public:
  RecurrenceLog(std::shared_ptr<SequenceMemory> memory, const DeltaMixer& mixer);
  RecurrenceLog(std::shared_ptr<SequenceMemory> memory, const ConvolutionMixer& mixer, int64_t hidden_size);
  RecurrenceLog(std::shared_ptr<SequenceMemory> memory, const StateSpaceMixer& mixer);

  int64_t row_floats() const { return row_floats_; }
  int written() const { return written_; }
  void set_written(int end) { written_ = end; }

  // Returns a log that shares the memory of the first `length` positions; `length` is at least the saved state's position, or 0.
  RecurrenceLog fork(int length) const;

  // Allocates unshared states and blocks for rows [position, end), all or none; rows from the saved state to `position` are already
  // written. Returns the replaced pieces, for put_back(). Throws DEVICE_OUT_OF_MEMORY.
  std::vector<ReplacedPiece> reserve(int position, int end);
  void put_back(std::vector<ReplacedPiece>& replaced) noexcept;
  // Bytes that reserve() would take; for a position before the saved state: after truncate(0).
  uint64_t bytes_to_write(int position, int end) const;
  // Reads rows that are written and not before the saved state.
  void read(int position, int rows, std::span<uint8_t> out) const;
  // Writes rows into reserved memory. If the rows lie before the state's position, the state must be computed again.
  void write(int position, int rows, std::span<const uint8_t> in);
  // Forgets positions >= length; `length` is not before the saved state, or it is 0.
  void truncate(int length);

  // True if rows < end can be run from `position` on. False after a truncation, a long advance or a fork since reserve().
  bool holds(int position, int end) const;
  // For the layer's operators. The memory at a row holds row_run(position) consecutive rows.
  float* row(int position);
  static int row_run(int position) { return kSavedStateStep - position % kSavedStateStep; }
  // [convolution's tail | state of the rule].
  float* state() { return states_.floats(); }
  float* saved_state() { return states_.floats() + state_floats(); }
  int64_t tail_floats() const { return tail_floats_; }
  int64_t state_floats() const { return tail_floats_ + rule_floats_; }
  // Position after the rows that the state includes; kUnknown while the state changes, and where it must be computed again.
  static constexpr int kUnknown = -1;
  int state_position() const { return state_position_; }
  void set_state_position(int position) { state_position_ = position; }
  int saved_position() const { return saved_position_; }
  // Moves the saved state by kSavedStateStep positions: their rows have been run through its state and are forgotten.
  void move_saved_state();

 private:
  static constexpr int kStates = -1;  // the place of the states in the result of reserve()

  RecurrenceLog(std::shared_ptr<SequenceMemory> memory, int64_t row_floats, int64_t tail_floats, int64_t rule_floats);
  // A convolution of one tap has no state, and memory of 0 bytes would count as missing; so this is never 0.
  uint64_t states_bytes() const { return float_bytes(std::max<int64_t>(1, 2 * state_floats())); }
  uint64_t block_bytes() const { return float_bytes(row_floats_ * kSavedStateStep); }
  // The missing blocks of rows from the saved state to `end`, and the shared blocks of rows [position, end).
  std::vector<int> blocks_to_take(int position, int end) const;
  bool states_to_take() const { return states_.empty() || states_.shared(); }
  std::vector<SpacedRows> places(int position, int rows) const;

  std::shared_ptr<SequenceMemory> memory_;
  int64_t row_floats_;
  int64_t tail_floats_;
  int64_t rule_floats_;
  SequencePiece states_;
  std::map<int, SequencePiece> blocks_;  // by position / kSavedStateStep
  std::vector<SequencePiece> spare_;     // not shared with any sequence
  int saved_position_ = 0;               // a multiple of kSavedStateStep
  int state_position_ = 0;
  int written_ = 0;
};

}  // namespace odmoe
