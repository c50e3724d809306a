// Which operation comes next (ZipMoE, appendix A): work-conserving in the order that the loads were given. Pure: no thread, no
// file, no clock; the loader calls it under its lock.
#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "load_plan.h"
#include "load_staging.h"

namespace odmoe {

// Rank of an operation among all that could be done now; the smallest is done first.
struct OperationRank {
  bool filling = false;  // host memory, for which nobody waits
  bool relaxed = false;  // not urgent
  int64_t block = 0;
  uint64_t turn = 0;  // of loads without an order, which are a block each: their arrival
  Part part = Part::exponents;
  int64_t position = 0;
  uint64_t arrival = 0;
  size_t tensor = 0;
  auto operator<=>(const OperationRank&) const = default;
};

// How far the operations on one matrix are. Reads of a part, and pieces, are begun in the order of the plan.
class TensorProgress {
 public:
  void begin(const TensorPlan& plan, const LoadRequest& request);

  // The piece whose bytes of the part are read next; the number of pieces when all have been.
  uint32_t next_read(Part part) const { return read_[index_of(part)]; }
  bool reads_left(Part part) const { return next_read(part) < pieces_; }
  void read_done(const TensorPlan& plan, Part part);

  // The piece that is recovered next, once its reads are done.
  bool piece_ready() const;
  uint32_t begin_piece() { return begun_++; }
  void piece_done() { done_++; }
  bool all_done() const { return done_ == pieces_; }

  // Buffers held, by shard and by piece.
  std::vector<int> shard_buffers;
  std::vector<int> piece_buffers;
  std::vector<uint32_t> shard_pieces_left;
  // Slices of each chunk that have not been summed up, and the sums.
  std::vector<uint32_t> slices_left;
  std::vector<uint32_t> slice_crcs;
  // Of the read that is under way, when its part's storage is being read in several goes.
  struct Position {
    uint32_t range = 0;  // counted from the piece's first
    uint64_t bytes = 0;
  };
  std::array<Position, kParts> reading = {};
  // A read of the part is under way; the next one begins where it ends.
  std::array<bool, kParts> in_flight = {};

 private:
  void skip_empty(const TensorPlan& plan, Part part);

  uint32_t pieces_ = 0;
  std::array<uint32_t, kParts> read_ = {};
  uint32_t begun_ = 0;
  uint32_t done_ = 0;
};

// One expert on its way into a slot.
struct LoadTask {
  LoadRequest request;
  uint64_t arrival = 0;
  bool stopping = false;  // cancelled or failed: nothing more is begun
  bool filling = false;   // host memory, and no slot: it comes last, and reads nothing while an urgent load is under way
  std::array<TensorPlan, kExpertTensors> plans;
  std::array<TensorProgress, kExpertTensors> progress;

  // Once the plans are made.
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

// The first read that can be done and is not under way: whose staging is there, or free, and whose exponents have been read if it is
// of signs and mantissas that need a buffer. A piece that takes a buffer of its own has its shard's before (so that every buffer
// belongs to a piece that can be finished, whatever other reads are under way, and none waits for another).
std::optional<ReadOperation> next_read(const std::vector<LoadTask*>& tasks, const BufferRing& shard_buffers,
                                       const BufferRing& piece_buffers);
// Takes the buffers that the read needs and has not got.
void take_buffers(const ReadOperation& read, BufferRing& shard_buffers, BufferRing& piece_buffers);

std::optional<PieceOperation> next_piece(const std::vector<LoadTask*>& tasks);
// Gives back what the piece held, and its shard with its last piece.
void finish_piece(const PieceOperation& operation, BufferRing& shard_buffers, BufferRing& piece_buffers);
void give_back_all(LoadTask& task, BufferRing& shard_buffers, BufferRing& piece_buffers);

}  // namespace odmoe
