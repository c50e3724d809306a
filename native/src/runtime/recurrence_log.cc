#include "odmoe/recurrence_log.h"

#include <algorithm>
#include <utility>

namespace odmoe {

RecurrenceLog::RecurrenceLog(std::shared_ptr<Backend> backend, const DeltaMixer& mixer)
    : RecurrenceLog(std::move(backend), mixer.channels() + 2 * int64_t{mixer.value_heads}, (mixer.taps - 1) * mixer.channels(),
                    mixer.value_size() * mixer.key_dim) {}

RecurrenceLog::RecurrenceLog(std::shared_ptr<Backend> backend, const ConvolutionMixer& mixer, int64_t hidden_size)
    : RecurrenceLog(std::move(backend), hidden_size, (mixer.taps - 1) * hidden_size, 0) {}

RecurrenceLog::RecurrenceLog(std::shared_ptr<Backend> backend, int64_t row_floats, int64_t tail_floats, int64_t rule_floats)
    : backend_(std::move(backend)), row_floats_(row_floats), tail_floats_(tail_floats), rule_floats_(rule_floats) {
  spare_.reserve(kSpareLogBlocks);
}

std::vector<int> RecurrenceLog::reserve(int end) {
  std::vector<int> reserved;
  try {
    if (states_.empty()) {
      // A convolution of one tap has no state; memory of no bytes would count as none.
      states_ = DeviceMemory(backend_, float_bytes(std::max<int64_t>(1, 2 * state_floats())));
      reserved.push_back(kStates);
    }
    for (int block = checkpoint_ / kCheckpointStep; block * kCheckpointStep < end; block++) {
      if (blocks_.contains(block)) continue;
      if (spare_.empty()) {
        blocks_.emplace(block, DeviceMemory(backend_, float_bytes(row_floats_ * kCheckpointStep)));
      } else {
        blocks_.emplace(block, std::move(spare_.back()));
        spare_.pop_back();
      }
      reserved.push_back(block);
    }
  } catch (...) {
    drop(reserved);
    throw;
  }
  return reserved;
}

void RecurrenceLog::drop(const std::vector<int>& blocks) noexcept {
  for (const int block : blocks) {
    if (block == kStates) {
      states_ = {};
    } else {
      blocks_.erase(block);
    }
  }
}

bool RecurrenceLog::holds(int position, int end) const {
  if (states_.empty() || position < checkpoint_ || position > written_) return false;
  for (int block = checkpoint_ / kCheckpointStep; block * kCheckpointStep < end; block++) {
    if (!blocks_.contains(block)) return false;
  }
  return true;
}

float* RecurrenceLog::row(int position) {
  return blocks_.at(position / kCheckpointStep).floats() + position % kCheckpointStep * row_floats_;
}

std::vector<SpacedRows> RecurrenceLog::places(int position, int rows) const {
  std::vector<SpacedRows> places;
  for (int done = 0; done < rows;) {
    const int at = position + done;
    const int run = std::min(rows - done, row_run(at));
    const uint64_t bytes = float_bytes(run * row_floats_);
    float* const first = blocks_.at(at / kCheckpointStep).floats() + at % kCheckpointStep * row_floats_;
    places.push_back({.first = first, .count = 1, .row_bytes = bytes, .pitch_bytes = bytes});
    done += run;
  }
  return places;
}

void RecurrenceLog::read(int position, int rows, std::span<uint8_t> out) const {
  backend_->gather_to_host(out.data(), places(position, rows));
}

void RecurrenceLog::write(int position, int rows, std::span<const uint8_t> in) {
  if (position < state_position_) state_position_ = kUnknown;
  backend_->scatter_to_device(places(position, rows), in.data());
}

void RecurrenceLog::truncate(int length) {
  if (length >= written_) return;
  written_ = length;
  if (length < state_position_) state_position_ = kUnknown;
  if (length > 0) return;
  // New memory is zero, as the state before the first position is.
  states_ = {};
  blocks_.clear();
  checkpoint_ = 0;
  state_position_ = 0;
}

void RecurrenceLog::move_checkpoint() {
  const auto passed = blocks_.find(checkpoint_ / kCheckpointStep);
  if (spare_.size() < kSpareLogBlocks) spare_.push_back(std::move(passed->second));
  blocks_.erase(passed);
  checkpoint_ += kCheckpointStep;
}

}  // namespace odmoe
