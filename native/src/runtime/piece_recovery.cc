#include "piece_recovery.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "../store/quantized_weights.h"
#include "../store/stored_chunk.h"
#include "odmoe/error.h"

namespace odmoe {
namespace {

constexpr uint64_t kLeastDecodedBlock = 256 * 1024;
constexpr uint64_t kDecodedBlockRows = 16;

// Decoders do not know the place of a chunk, so this adds it to their errors.
template <typename Decoding>
void naming_the_chunk(const ChunkLocation& chunk, Decoding decoding) {
  try {
    decoding();
  } catch (const Error& error) {
    throw_corrupt(chunk, error.what());
  }
}

const ChunkLocation& first_wanted_chunk(const PieceWork& work) {
  const std::vector<ChunkLocation>& chunks = work.source->chunks;
  return *std::find_if(chunks.begin(), chunks.end(),
                       [&](const ChunkLocation& chunk) { return work.plan->wanted[static_cast<size_t>(chunk.plane)]; });
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
    // The thread that computes the checksum of a chunk's last slice sees the results of the others.
    const std::atomic_ref left(work.slices_left[slice.chunk]);
    if (left.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    check_crc(work.source->chunks[slice.chunk], whole_crc(*work.plan, work.plan->checks[slice.chunk], work.slice_crcs));
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

int64_t PieceRecovery::block_rows_of(const PieceWork& work, int plane, const OpenChunk& open) const {
  const ChunkLocation& chunk = work.source->chunks[open.chunk];
  const auto row_bytes = static_cast<uint64_t>(plane_row_bytes(work.source->split, plane, work.source->columns));
  const uint64_t block_bytes = std::min(open.decoder.block_bytes(), chunk.plain_bytes);
  if (block_bytes % row_bytes != 0) {
    throw_corrupt(chunk, "its blocks of " + std::to_string(block_bytes) + " bytes cut the rows of the matrix");
  }
  if (block_bytes + ChunkDecoder::kScratchSlack > scratch_bytes_) {
    throw_corrupt(chunk, "its blocks of " + std::to_string(block_bytes) + " bytes are larger than a pack's are");
  }
  return static_cast<int64_t>(block_bytes / row_bytes);
}

int64_t PieceRecovery::decode_rows(const PieceWork& work, int plane, int64_t row, size_t coded_plane, PlaneSource& source) {
  OpenChunk& open = open_[coded_plane];
  if (row < open.first_row || row >= open.end_row) {
    const PlannedShard& shard = work.plan->shards[work.plan->pieces[work.piece].shard];
    const int64_t block_rows = block_rows_of(work, plane, open);
    const int64_t block = (row - shard.first_row) / block_rows;
    uint8_t* const scratch = scratch_ + coded_plane * scratch_bytes_;
    naming_the_chunk(work.source->chunks[open.chunk],
                     [&] { open.rows = open.decoder.decode_block(static_cast<uint64_t>(block), scratch); });
    open.first_row = shard.first_row + block * block_rows;
    open.end_row = std::min(open.first_row + block_rows, shard.first_row + shard.rows);
  }
  const int64_t row_bytes = plane_row_bytes(work.source->split, plane, work.source->columns);
  source.plain = open.rows + (row - open.first_row) * row_bytes;
  return open.end_row;
}

void PieceRecovery::recover(const PieceWork& work) {
  check_slices(work);
  if (work.matrix == nullptr) return;
  const bool on_device = device_decodes(work);
  const PlannedPiece& piece = work.plan->pieces[work.piece];
  const int64_t end_row = piece.first_row + piece.rows;
  for (int64_t row = piece.first_row; row < end_row;) {
    PlaneSource sources[kMaxPlanes];
    const int64_t next = find_planes(work, row, end_row, on_device, sources);
    write(work, row, next - row, on_device, sources);
    row = next;
  }
}

int64_t PieceRecovery::find_planes(const PieceWork& work, int64_t row, int64_t end_row, bool on_device, PlaneSource* sources) {
  const PlannedPiece& piece = work.plan->pieces[work.piece];
  const PlannedShard& shard = work.plan->shards[piece.shard];
  int64_t next = end_row;
  size_t coded_planes = 0;
  for (int plane = 0; plane < plane_count(work.source->split); plane++) {
    const auto at = static_cast<size_t>(plane);
    if (!work.plan->wanted[at]) continue;
    const CodedChunk& coded = shard.coded[at];
    if (!coded.present) {
      const int64_t row_bytes = plane_row_bytes(work.source->split, plane, work.source->columns);
      sources[at].plain = address(work.memory, piece.raw[at]) + (row - piece.first_row) * row_bytes;
      continue;
    }
    if (coded_planes == kCodedPlanes) {
      throw_corrupt(work.source->chunks[coded.chunk], "more planes are coded than a pack's are");
    }
    open_chunk(work, coded, open_[coded_planes]);
    const int64_t end = on_device ? name_blocks(work, plane, row, end_row, coded_planes, sources[at])
                                  : decode_rows(work, plane, row, coded_planes, sources[at]);
    next = std::min(next, end);
    coded_planes++;
  }
  return next;
}

void PieceRecovery::write(const PieceWork& work, int64_t row, int64_t rows, bool on_device, const PlaneSource* sources) {
  const int64_t first_row = work.first_row + row;
  if (on_device) {
    backend_.write_coded_rows(*work.matrix, first_row, rows, work.source->split, sources);
    return;
  }
  const uint8_t* planes[kMaxPlanes] = {};
  for (int plane = 0; plane < plane_count(work.source->split); plane++) planes[plane] = sources[plane].plain;
  const char* const fault = quantized_fault(work.source->split, planes, rows, work.source->columns);
  if (fault != nullptr) throw_corrupt(first_wanted_chunk(work), fault);
  if (!backend_.write_rows(*work.matrix, first_row, rows, work.source->split, planes)) {
    throw Error(ErrorCode::internal, "a slot's format cannot hold every expert");
  }
}

bool PieceRecovery::device_decodes(const PieceWork& work) const {
  // Quantized values must be checked, and devices do not check them.
  if (is_quantized(work.source->split)) return false;
  const PlannedShard& shard = work.plan->shards[work.plan->pieces[work.piece].shard];
  bool any = false;
  for (const CodedChunk& coded : shard.coded) {
    if (!coded.present) continue;
    if (!backend_.decodes(work.source->chunks[coded.chunk].codec)) return false;
    any = true;
  }
  return any;
}

int64_t PieceRecovery::name_blocks(const PieceWork& work, int plane, int64_t row, int64_t end_row, size_t coded_plane,
                                   PlaneSource& source) {
  const OpenChunk& open = open_[coded_plane];
  Blocks& blocks = blocks_[coded_plane];
  const PlannedShard& shard = work.plan->shards[work.plan->pieces[work.piece].shard];
  const ChunkLocation& chunk = work.source->chunks[open.chunk];
  const int64_t block_rows = block_rows_of(work, plane, open);
  const int64_t first_block = (row - shard.first_row) / block_rows;
  const int64_t end_block = std::min((end_row - shard.first_row + block_rows - 1) / block_rows, first_block + kMostBlocks);
  const int64_t first_row = shard.first_row + first_block * block_rows;
  source.codec = chunk.codec;
  source.blocks = blocks.data();
  source.block_count = static_cast<int>(end_block - first_block);
  source.skipped_bytes =
      static_cast<uint64_t>((row - first_row) * plane_row_bytes(work.source->split, plane, work.source->columns));
  naming_the_chunk(chunk, [&] {
    source.table = open.decoder.table();
    for (int64_t block = first_block; block < end_block; block++) {
      const auto index = static_cast<uint64_t>(block);
      const std::span<const uint8_t> coded = open.decoder.coded_block(index);
      blocks[static_cast<size_t>(block - first_block)] = {coded.data(), coded.size(), open.decoder.plain_bytes_of(index)};
    }
  });
  return std::min(end_row, shard.first_row + end_block * block_rows);
}

}  // namespace odmoe
