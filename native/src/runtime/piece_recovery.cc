#include "piece_recovery.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "../store/stored_chunk.h"
#include "odmoe/error.h"

namespace odmoe {
namespace {

constexpr uint64_t kLeastDecodedBlock = 256 * 1024;
constexpr uint64_t kDecodedBlockRows = 16;

// Decoders do not know where a chunk lies.
template <typename Decoding>
void naming_the_chunk(const ChunkLocation& chunk, Decoding decoding) {
  try {
    decoding();
  } catch (const Error& error) {
    throw_corrupt(chunk, error.what());
  }
}

uint32_t whole_crc(const TensorPlan& plan, const ChunkCheck& check, std::span<const uint32_t> slice_crcs) {
  uint32_t crc = slice_crcs[check.first_slice];
  for (uint32_t i = plan.slices[check.first_slice].next; i != kNoSlice; i = plan.slices[i].next) {
    crc = crc32c_combine(crc, slice_crcs[i], plan.slices[i].bytes);
  }
  return crc;
}

}  // namespace

uint64_t decoded_block_bytes(int64_t rows, int64_t columns) {
  const uint64_t largest = std::max(kLeastDecodedBlock, kDecodedBlockRows * static_cast<uint64_t>(columns));
  const uint64_t block = std::min(largest, static_cast<uint64_t>(rows * columns));
  return (block + ChunkDecoder::kScratchSlack + kReadAlignment - 1) / kReadAlignment * kReadAlignment;
}

void PieceRecovery::check_slices(const PieceWork& work) {
  const PlannedPiece& piece = work.plan->pieces[work.piece];
  for (uint32_t i = piece.slices.begin; i < piece.slices.end; i++) {
    const CheckSlice& slice = work.plan->slices[i];
    work.slice_crcs[i] = crc32c(0, address(work.memory, slice.place), slice.bytes);
    // Whoever sums up a chunk's last slice sees what the others have found.
    const std::atomic_ref left(work.slices_left[slice.chunk]);
    if (left.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    check_crc(work.source->chunks[slice.chunk],
              whole_crc(*work.plan, work.plan->checks[slice.chunk], work.slice_crcs));
  }
}

void PieceRecovery::open_chunk(const PieceWork& work, const CodedChunk& coded, OpenChunk& open) {
  if (open.open && open.serial == work.serial && open.chunk == coded.chunk) return;
  const ChunkLocation& chunk = work.source->chunks[coded.chunk];
  open.open = false;
  naming_the_chunk(chunk, [&] {
    open.decoder.open(chunk.codec, {address(work.memory, coded.place), chunk.stored_bytes}, chunk.plain_bytes, 0);
  });
  open.open = true;
  open.serial = work.serial;
  open.chunk = coded.chunk;
  open.first_row = 0;
  open.end_row = 0;
}

void PieceRecovery::decode_rows(const PieceWork& work, int plane, int64_t row, OpenChunk& open, uint8_t* scratch) {
  if (row >= open.first_row && row < open.end_row) return;
  const PlannedShard& shard = work.plan->shards[work.plan->pieces[work.piece].shard];
  const ChunkLocation& chunk = work.source->chunks[open.chunk];
  const int64_t row_bytes = work.source->columns * plane_value_bytes(work.source->split, plane);
  const uint64_t block_bytes = std::min(open.decoder.block_bytes(), chunk.plain_bytes);
  if (block_bytes % static_cast<uint64_t>(row_bytes) != 0) {
    throw_corrupt(chunk, "its blocks of " + std::to_string(block_bytes) + " bytes cut the rows of the matrix");
  }
  if (block_bytes + ChunkDecoder::kScratchSlack > scratch_bytes_) {
    throw_corrupt(chunk, "its blocks of " + std::to_string(block_bytes) + " bytes are larger than a pack's are");
  }
  const int64_t block_rows = static_cast<int64_t>(block_bytes) / row_bytes;
  const int64_t block = (row - shard.first_row) / block_rows;
  naming_the_chunk(chunk, [&] { open.rows = open.decoder.decode_block(static_cast<uint64_t>(block), scratch); });
  open.first_row = shard.first_row + block * block_rows;
  open.end_row = std::min(open.first_row + block_rows, shard.first_row + shard.rows);
}

void PieceRecovery::recover(const PieceWork& work) {
  check_slices(work);
  const PlannedPiece& piece = work.plan->pieces[work.piece];
  const PlannedShard& shard = work.plan->shards[piece.shard];
  const int planes = plane_count(work.source->split);
  const int64_t end_row = piece.first_row + piece.rows;
  for (int64_t row = piece.first_row; row < end_row;) {
    int64_t next = end_row;
    const uint8_t* pointers[kMaxPlanes] = {};
    size_t coded_planes = 0;
    for (int plane = 0; plane < planes; plane++) {
      const auto at = static_cast<size_t>(plane);
      const int64_t row_bytes = work.source->columns * plane_value_bytes(work.source->split, plane);
      if (!shard.coded[at].present) {
        pointers[plane] = address(work.memory, piece.raw[at]) + (row - piece.first_row) * row_bytes;
        continue;
      }
      if (coded_planes == kCodedPlanes) {
        throw_corrupt(work.source->chunks[shard.coded[at].chunk], "more planes are coded than a pack's are");
      }
      OpenChunk& open = open_[coded_planes];
      open_chunk(work, shard.coded[at], open);
      decode_rows(work, plane, row, open, scratch_ + coded_planes * scratch_bytes_);
      pointers[plane] = open.rows + (row - open.first_row) * row_bytes;
      next = std::min(next, open.end_row);
      coded_planes++;
    }
    if (!backend_.write_rows(*work.matrix, work.first_row + row, next - row, work.source->split, pointers)) {
      throw Error("INTERNAL", "a slot's format cannot hold every expert");
    }
    row = next;
  }
}

}  // namespace odmoe
