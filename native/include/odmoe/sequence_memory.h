// Device memory of a model's sequences, in pieces that several sequences may share until one of them writes there.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "odmoe/backend.h"
#include "odmoe/device.h"

namespace odmoe {

class SequenceMemory;

// A sequence's shared ownership of a piece of memory; it may be empty.
class SequencePiece {
 public:
  SequencePiece() = default;

  bool empty() const { return memory_ == nullptr; }
  // True if another sequence shares this piece. A piece that is not shared stays so until its sequence is forked.
  bool shared() const;
  float* floats() const { return memory_->memory.floats(); }

 private:
  friend class SequenceMemory;
  struct Counted {
    Counted(std::shared_ptr<SequenceMemory> from, uint64_t bytes);
    ~Counted();
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

    std::shared_ptr<SequenceMemory> counter;
    DeviceMemory memory;
    uint64_t counted_bytes;
  };

  std::shared_ptr<const Counted> memory_;
};

// A piece that a sequence has taken, and the piece that it replaced.
struct ReplacedPiece {
  int place = 0;
  SequencePiece before;
  bool from_spare = false;  // only in a recurrence's log: the piece came from its spare blocks
};

class SequenceMemory : public std::enable_shared_from_this<SequenceMemory> {
 public:
  explicit SequenceMemory(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}

  // Returns zeroed memory. Throws DEVICE_OUT_OF_MEMORY.
  SequencePiece allocate(uint64_t bytes);
  // Returns a piece with the same contents. Throws DEVICE_OUT_OF_MEMORY.
  SequencePiece copy(const SequencePiece& piece);
  Backend& backend() const { return *backend_; }
  // Bytes of the device's budget that all pieces take.
  uint64_t held_bytes() const { return held_bytes_.load(); }

 private:
  friend struct SequencePiece::Counted;

  std::shared_ptr<Backend> backend_;
  std::atomic<uint64_t> held_bytes_ = 0;
};

}  // namespace odmoe
