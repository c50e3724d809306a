#include "odmoe/recurrence_log.h"

#include <algorithm>
#include <utility>

namespace odmoe {

RecurrenceLog::RecurrenceLog(std::shared_ptr<SequenceMemory> memory, const DeltaMixer& mixer)
    : RecurrenceLog(std::move(memory), mixer.row_floats(), (mixer.taps - 1) * mixer.channels(),
                    mixer.value_size() * mixer.key_dim) {}

RecurrenceLog::RecurrenceLog(std::shared_ptr<SequenceMemory> memory, const ConvolutionMixer& mixer, int64_t hidden_size)
    : RecurrenceLog(std::move(memory), hidden_size, (mixer.taps - 1) * hidden_size, 0) {}

RecurrenceLog::RecurrenceLog(std::shared_ptr<SequenceMemory> memory, const StateSpaceMixer& mixer)
    : RecurrenceLog(std::move(memory), mixer.row_floats(), (mixer.taps - 1) * mixer.channels(),
                    mixer.inner_size() * mixer.state_size) {}

RecurrenceLog::RecurrenceLog(std::shared_ptr<SequenceMemory> memory, int64_t row_floats, int64_t tail_floats, int64_t rule_floats)
    : memory_(std::move(memory)), row_floats_(row_floats), tail_floats_(tail_floats), rule_floats_(rule_floats) {
  spare_.reserve(kSpareLogBlocks);
}

RecurrenceLog RecurrenceLog::fork(int length) const {
  RecurrenceLog fork(memory_, row_floats_, tail_floats_, rule_floats_);
  if (length == 0) return fork;
  fork.states_ = states_;
  fork.blocks_ = blocks_;
  fork.saved_position_ = saved_position_;
  fork.state_position_ = state_position_;
  fork.written_ = written_;
  fork.truncate(length);
  fork.blocks_.erase(fork.blocks_.lower_bound((length + kSavedStateStep - 1) / kSavedStateStep), fork.blocks_.end());
  return fork;
}

bool RecurrenceLog::holds(int position, int end) const {
  if (position < saved_position_ || position > written_) return false;
  return !states_to_take() && blocks_to_take(position, end).empty();
}

std::vector<int> RecurrenceLog::blocks_to_take(int position, int end) const {
  std::vector<int> blocks;
  if (position == end) return blocks;
  for (int block = saved_position_ / kSavedStateStep; block * kSavedStateStep < end; block++) {
    const auto found = blocks_.find(block);
    const bool written_to = block >= position / kSavedStateStep;
    if (found == blocks_.end() || (written_to && found->second.shared())) blocks.push_back(block);
  }
  return blocks;
}

std::vector<ReplacedPiece> RecurrenceLog::reserve(int position, int end) {
  std::vector<ReplacedPiece> replaced;
  if (position == end) return replaced;
  const std::vector<int> blocks = blocks_to_take(position, end);
  replaced.reserve(blocks.size() + 1);
  try {
    if (states_to_take()) {
      SequencePiece states = states_.empty() ? memory_->allocate(states_bytes()) : memory_->copy(states_);
      replaced.push_back({kStates, std::exchange(states_, std::move(states))});
    }
    for (const int block : blocks) {
      const bool from_spare = !spare_.empty();
      SequencePiece taken = from_spare ? spare_.back() : memory_->allocate(block_bytes());
      const auto shared = blocks_.find(block);
      if (shared != blocks_.end()) memory_->backend().copy_on_device(taken.floats(), shared->second.floats(), block_bytes());
      SequencePiece& piece = blocks_[block];
      if (from_spare) spare_.pop_back();
      replaced.push_back({block, std::exchange(piece, std::move(taken)), from_spare});
    }
  } catch (...) {
    put_back(replaced);
    throw;
  }
  return replaced;
}

void RecurrenceLog::put_back(std::vector<ReplacedPiece>& replaced) noexcept {
  for (ReplacedPiece& piece : replaced) {
    if (piece.place == kStates) {
      states_ = std::move(piece.before);
      continue;
    }
    const auto found = blocks_.find(piece.place);
    if (piece.from_spare) spare_.push_back(std::move(found->second));
    found->second = std::move(piece.before);
    if (found->second.empty()) blocks_.erase(found);
  }
}

uint64_t RecurrenceLog::bytes_to_write(int position, int end) const {
  if (position == end) return 0;
  const Backend& backend = memory_->backend();
  const bool anew = position < saved_position_;
  const size_t blocks =
      anew ? static_cast<size_t>((end + kSavedStateStep - 1) / kSavedStateStep) : blocks_to_take(position, end).size();
  const uint64_t states = anew || states_to_take() ? backend.counted_bytes(states_bytes()) : 0;
  return states + (blocks - std::min(blocks, spare_.size())) * backend.counted_bytes(block_bytes());
}

float* RecurrenceLog::row(int position) {
  return blocks_.at(position / kSavedStateStep).floats() + position % kSavedStateStep * row_floats_;
}

std::vector<SpacedRows> RecurrenceLog::places(int position, int rows) const {
  std::vector<SpacedRows> places;
  for (int done = 0; done < rows;) {
    const int at = position + done;
    const int run = std::min(rows - done, row_run(at));
    const uint64_t bytes = float_bytes(run * row_floats_);
    float* const first = blocks_.at(at / kSavedStateStep).floats() + at % kSavedStateStep * row_floats_;
    places.push_back({.first = first, .count = 1, .row_bytes = bytes, .pitch_bytes = bytes});
    done += run;
  }
  return places;
}

void RecurrenceLog::read(int position, int rows, std::span<uint8_t> out) const {
  memory_->backend().gather_to_host(out.data(), places(position, rows));
}

void RecurrenceLog::write(int position, int rows, std::span<const uint8_t> in) {
  if (position < state_position_) state_position_ = kUnknown;
  memory_->backend().scatter_to_device(places(position, rows), in.data());
}

void RecurrenceLog::truncate(int length) {
  if (length >= written_) return;
  written_ = length;
  if (length < state_position_) state_position_ = kUnknown;
  if (length > 0) return;
  // New memory is zero, like the state before the first position.
  states_ = {};
  blocks_.clear();
  saved_position_ = 0;
  state_position_ = 0;
}

void RecurrenceLog::move_saved_state() {
  const auto passed = blocks_.find(saved_position_ / kSavedStateStep);
  if (spare_.size() < kSpareLogBlocks && !passed->second.shared()) spare_.push_back(std::move(passed->second));
  blocks_.erase(passed);
  saved_position_ += kSavedStateStep;
}

}  // namespace odmoe
