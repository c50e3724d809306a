#include "load_schedule.h"

#include <algorithm>

namespace odmoe {
namespace {

constexpr int64_t kAfterAllBlocks = INT64_MAX;

struct BuffersNeeded {
  bool shard = false;
  bool piece = false;
};

BuffersNeeded buffers_needed(const ReadOperation& read) {
  const TensorPlan& plan = read.task->plans[read.tensor];
  const TensorProgress& progress = read.task->progress[read.tensor];
  const PlannedPiece& piece = plan.pieces[read.piece];
  const PlannedShard& shard = plan.shards[piece.shard];
  const bool takes_piece = piece.buffered[index_of(read.part)];
  const bool of_other_part = shard.buffered[index_of(Part::exponents)] || shard.buffered[index_of(Part::sign_mantissa)];
  const bool takes_shard = shard.buffered[index_of(read.part)] || (takes_piece && of_other_part);
  return {takes_shard && progress.shard_buffers[piece.shard] == kNoBuffer,
          takes_piece && progress.piece_buffers[read.piece] == kNoBuffer};
}

bool can_read(const ReadOperation& read, const BufferRing& shard_buffers, const BufferRing& piece_buffers) {
  const TensorProgress& progress = read.task->progress[read.tensor];
  const bool urgent = read.task->request.urgent;
  const BuffersNeeded needed = buffers_needed(read);
  if (!needed.shard && !needed.piece) return true;
  if (read.part == Part::sign_mantissa && progress.next_read(Part::exponents) <= read.piece) return false;
  return (!needed.shard || shard_buffers.has_free(urgent)) && (!needed.piece || piece_buffers.has_free(urgent));
}

}  // namespace

void TensorProgress::begin(const TensorPlan& plan, const LoadRequest& request) {
  pieces_ = static_cast<uint32_t>(plan.pieces.size());
  begun_ = 0;
  done_ = 0;
  reading = {};
  in_flight = {};
  shard_buffers.assign(plan.shards.size(), kNoBuffer);
  piece_buffers.assign(plan.pieces.size(), kNoBuffer);
  shard_pieces_left.clear();
  for (const PlannedShard& shard : plan.shards) shard_pieces_left.push_back(shard.pieces.end - shard.pieces.begin);
  slices_left.clear();
  for (const ChunkCheck& check : plan.checks) slices_left.push_back(check.slices);
  slice_crcs.assign(plan.slices.size(), 0);
  for (const Part part : kBothParts) {
    read_[index_of(part)] = part_plan(request, part).from == PartOrigin::storage ? 0 : pieces_;
    skip_empty(plan, part);
  }
}

void TensorProgress::skip_empty(const TensorPlan& plan, Part part) {
  uint32_t& next = read_[index_of(part)];
  while (next < pieces_ && plan.pieces[next].ranges[index_of(part)].empty()) next++;
}

void TensorProgress::read_done(const TensorPlan& plan, Part part) {
  read_[index_of(part)]++;
  reading[index_of(part)] = {};
  skip_empty(plan, part);
}

bool TensorProgress::piece_ready() const { return begun_ < std::min(next_read(Part::exponents), next_read(Part::sign_mantissa)); }

void LoadTask::begin(uint64_t arrival_number) {
  arrival = arrival_number;
  stopping = false;
  for (size_t i = 0; i < kExpertTensors; i++) progress[i].begin(plans[i], request);
}

bool LoadTask::all_done() const {
  return std::all_of(progress.begin(), progress.end(), [](const TensorProgress& tensor) { return tensor.all_done(); });
}

OperationRank LoadTask::rank(size_t tensor, Part part) const {
  OperationRank rank;
  rank.filling = filling;
  rank.relaxed = !request.urgent;
  rank.part = part;
  rank.arrival = arrival;
  rank.tensor = tensor;
  if (request.order.has_value()) {
    rank.block = (*request.order)[tensor].block;
    rank.position = (*request.order)[tensor].position;
  } else {
    rank.block = kAfterAllBlocks;
    rank.turn = arrival;
  }
  return rank;
}

std::optional<ReadOperation> next_read(const std::vector<LoadTask*>& tasks, const BufferRing& shard_buffers,
                                       const BufferRing& piece_buffers) {
  const bool urgent_waits = std::any_of(tasks.begin(), tasks.end(), [](const LoadTask* task) { return task->request.urgent; });
  std::optional<ReadOperation> best;
  OperationRank best_rank;
  for (LoadTask* task : tasks) {
    if (task->stopping || (task->filling && urgent_waits)) continue;
    for (size_t tensor = 0; tensor < kExpertTensors; tensor++) {
      for (const Part part : kBothParts) {
        const TensorProgress& progress = task->progress[tensor];
        if (!progress.reads_left(part) || progress.in_flight[index_of(part)]) continue;
        const ReadOperation read{task, tensor, part, progress.next_read(part)};
        const OperationRank rank = task->rank(tensor, part);
        if (best.has_value() && !(rank < best_rank)) continue;
        if (!can_read(read, shard_buffers, piece_buffers)) continue;
        best = read;
        best_rank = rank;
      }
    }
  }
  return best;
}

void take_buffers(const ReadOperation& read, BufferRing& shard_buffers, BufferRing& piece_buffers) {
  const BuffersNeeded needed = buffers_needed(read);
  TensorProgress& progress = read.task->progress[read.tensor];
  const uint32_t shard = read.task->plans[read.tensor].pieces[read.piece].shard;
  if (needed.shard) progress.shard_buffers[shard] = shard_buffers.take();
  if (needed.piece) progress.piece_buffers[read.piece] = piece_buffers.take();
}

std::optional<PieceOperation> next_piece(const std::vector<LoadTask*>& tasks) {
  std::optional<PieceOperation> best;
  OperationRank best_rank;
  for (LoadTask* task : tasks) {
    if (task->stopping) continue;
    for (size_t tensor = 0; tensor < kExpertTensors; tensor++) {
      if (!task->progress[tensor].piece_ready()) continue;
      const OperationRank rank = task->rank(tensor, Part::exponents);
      if (best.has_value() && !(rank < best_rank)) continue;
      best = PieceOperation{task, tensor, 0};
      best_rank = rank;
    }
  }
  if (best.has_value()) best->piece = best->task->progress[best->tensor].begin_piece();
  return best;
}

void finish_piece(const PieceOperation& operation, BufferRing& shard_buffers, BufferRing& piece_buffers) {
  TensorProgress& progress = operation.task->progress[operation.tensor];
  const uint32_t shard = operation.task->plans[operation.tensor].pieces[operation.piece].shard;
  progress.piece_done();
  piece_buffers.give_back(progress.piece_buffers[operation.piece]);
  if (--progress.shard_pieces_left[shard] == 0) shard_buffers.give_back(progress.shard_buffers[shard]);
}

void give_back_all(LoadTask& task, BufferRing& shard_buffers, BufferRing& piece_buffers) {
  for (TensorProgress& progress : task.progress) {
    for (int& buffer : progress.shard_buffers) shard_buffers.give_back(buffer);
    for (int& buffer : progress.piece_buffers) piece_buffers.give_back(buffer);
  }
}

}  // namespace odmoe
