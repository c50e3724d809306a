// Chooses the next operation (ZipMoE, appendix A): work-conserving, in the order of the loads. Pure: no thread, no file, no clock;
// the loader calls it under its lock.
#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "load_plan.h"
#include "load_staging.h"

namespace odmoe {

// Rank of an operation among all that are possible now; the smallest rank comes first.
struct OperationRank {
  bool filling = false;  // it fills host memory, and nobody waits for it
  bool relaxed = false;  // not urgent
  int64_t block = 0;
  uint64_t turn = 0;  // for loads without an order, each of which is its own block: the number of their arrival
  Part part = Part::exponents;
  int64_t position = 0;
  uint64_t arrival = 0;
  size_t tensor = 0;
  auto operator<=>(const OperationRank&) const = default;
};

// Progress of the operations on one matrix. Reads of a part, and pieces, begin in the order of the plan.
class TensorProgress {
 public:
  void begin(const TensorPlan& plan, const LoadRequest& request);

  // The piece whose bytes of this part are read next; the number of pieces when all have been read.
  uint32_t next_read(Part part) const { return read_[index_of(part)]; }
  bool reads_left(Part part) const { return next_read(part) < pieces_; }
  void read_done(const TensorPlan& plan, Part part);

  // True if the next piece can be recovered: its reads are done.
  bool piece_ready() const;
  uint32_t begin_piece() { return begun_++; }
  void piece_done() { done_++; }
  bool all_done() const { return done_ == pieces_; }

  // The buffers of shards and of pieces.
  std::vector<int> shard_buffers;
  std::vector<int> piece_buffers;
  std::vector<uint32_t> shard_pieces_left;
  // Number of slices of each chunk whose checksum is not yet computed, and the checksums of slices.
  std::vector<uint32_t> slices_left;
  std::vector<uint32_t> slice_crcs;
  // Position of the current read, when it is read in several steps.
  struct Position {
    uint32_t range = 0;  // counted from the piece's first
    uint64_t bytes = 0;
  };
  std::array<Position, kParts> reading = {};
  // A read of the part is in flight; the next one begins where it ends.
  std::array<bool, kParts> in_flight = {};

 private:
  void skip_empty(const TensorPlan& plan, Part part);

  uint32_t pieces_ = 0;
  std::array<uint32_t, kParts> read_ = {};
  uint32_t begun_ = 0;
  uint32_t done_ = 0;
};

// The load of one expert into a slot.
struct LoadTask {
  LoadRequest request;
  uint64_t arrival = 0;
  bool stopping = false;  // cancelled or failed: no more operations begin
  bool filling = false;   // it fills host memory, not a slot: it comes last, and reads nothing during an urgent load
  std::array<TensorPlan, kExpertTensors> plans;
  std::array<TensorProgress, kExpertTensors> progress;

  // To be called once the plans are made.
  void begin(uint64_t arrival_number);
  bool all_done() const;
  OperationRank rank(size_t tensor, Part part) const;
};

struct ReadOperation {
  LoadTask* task = nullptr;
  size_t tensor = 0;
  Part part = Part::exponents;
  uint32_t piece = 0;
};

struct PieceOperation {
  LoadTask* task = nullptr;
  size_t tensor = 0;
  uint32_t piece = 0;
};

// The first read that is possible and not in flight. Its staging must be held or free, and a read of signs and mantissas that needs
// a buffer comes after its exponents. A piece gets its own buffer only after its shard's buffer. So every buffer belongs to a piece
// that can be finished, whatever other reads are in flight, and no buffer waits for another.
std::optional<ReadOperation> next_read(const std::vector<LoadTask*>& tasks, const BufferRing& shard_buffers,
                                       const BufferRing& piece_buffers);
// Takes the missing buffers of the read.
void take_buffers(const ReadOperation& read, BufferRing& shard_buffers, BufferRing& piece_buffers);

std::optional<PieceOperation> next_piece(const std::vector<LoadTask*>& tasks);
// Gives back the buffers of the piece, and after the last piece those of its shard.
void finish_piece(const PieceOperation& operation, BufferRing& shard_buffers, BufferRing& piece_buffers);
void give_back_all(LoadTask& task, BufferRing& shard_buffers, BufferRing& piece_buffers);

}  // namespace odmoe
