#include "odmoe/sequence_memory.h"

#include <utility>

namespace odmoe {

SequencePiece::Counted::Counted(std::shared_ptr<SequenceMemory> from, uint64_t bytes)
    : counter(std::move(from)), memory(counter->backend_, bytes), counted_bytes(counter->backend_->counted_bytes(bytes)) {
  counter->held_bytes_ += counted_bytes;
}

SequencePiece::Counted::~Counted() { counter->held_bytes_ -= counted_bytes; }

bool SequencePiece::shared() const {
  if (memory_.use_count() > 1) return true;
  // The fence makes the reads of the former co-owner happen before this owner's writes.
  std::atomic_thread_fence(std::memory_order_acquire);
  return false;
}

SequencePiece SequenceMemory::allocate(uint64_t bytes) {
  SequencePiece piece;
  piece.memory_ = std::make_shared<const SequencePiece::Counted>(shared_from_this(), bytes);
  return piece;
}

SequencePiece SequenceMemory::copy(const SequencePiece& piece) {
  const DeviceBuffer& from = piece.memory_->memory.buffer();
  SequencePiece copy = allocate(from.bytes);
  backend_->copy_on_device(copy.memory_->memory.buffer().data, from.data, from.bytes);
  return copy;
}

}  // namespace odmoe
