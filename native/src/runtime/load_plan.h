// What is to be read for one matrix of an expert, in which pieces, and where it goes. Pure: no file is touched.
//
// A *shard* is a range of rows whose coded chunks belong to it alone. It is cut into *pieces*, ranges of rows that are checked,
// decoded and written to the slot in one operation. Before a piece can be, its shard's coded chunks and its own part of every raw
// plane must have been read: the directed graph of ZipMoE, figure 6, with an edge less for each part that an entry holds.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "odmoe/expert_load.h"
#include "odmoe/store.h"

namespace odmoe {

// Offsets, lengths and addresses of all reads are multiples of it: what direct I/O asks for.
inline constexpr uint64_t kReadAlignment = 4096;
// Bytes of raw planes in a piece, where the rows allow it.
inline constexpr uint64_t kPieceBytes = 512 * 1024;

enum class Part : uint8_t { exponents, sign_mantissa };
inline constexpr size_t kParts = 2;
inline constexpr std::array<Part, kParts> kBothParts = {Part::exponents, Part::sign_mantissa};
inline size_t index_of(Part part) { return static_cast<size_t>(part); }

// The memory that bytes lie in: a staging buffer for the coded chunks of a shard, one for the raw planes of a piece, or an entry.
enum class Holder : uint8_t { shard_buffer, piece_buffer, exponent_entry, sign_mantissa_entry };
inline constexpr size_t kHolders = 4;

struct Place {
  Holder holder = Holder::piece_buffer;
  uint64_t offset = 0;
};

// One stretch of a file, to be read in a go. Of its bytes those in [useful_begin, useful_end) are chunks' and counted.
struct FileRange {
  uint32_t chunk = 0;  // the first one that the useful bytes belong to; chunks of a raw plane may follow one another in a range
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t useful_begin = 0;
  uint64_t useful_end = 0;
  Place place;
};

inline constexpr uint32_t kNoSlice = UINT32_MAX;

// A stretch of one chunk's stored bytes that is summed up in one go; `next` follows it in the chunk.
struct CheckSlice {
  uint32_t chunk = 0;
  uint32_t next = kNoSlice;
  uint64_t bytes = 0;
  Place place;
};

struct IndexSpan {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool empty() const { return begin == end; }
};

struct PlannedPiece {
  uint32_t shard = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
  std::array<IndexSpan, kParts> ranges;    // of TensorPlan::ranges; a shard's first piece has those of its coded chunks too
  IndexSpan slices;                        // of TensorPlan::slices
  std::array<Place, kMaxPlanes> raw;       // the piece's rows of each raw plane
  std::array<bool, kParts> buffered = {};  // some of the part's ranges go into the piece's buffer
};

struct CodedChunk {
  bool present = false;
  uint32_t chunk = 0;
  Place place;
};

struct PlannedShard {
  int64_t first_row = 0;
  int64_t rows = 0;
  IndexSpan pieces;
  std::array<CodedChunk, kMaxPlanes> coded;
  std::array<bool, kParts> buffered = {};  // some of the part's ranges go into the shard's buffer
};

struct ChunkCheck {
  uint32_t first_slice = kNoSlice;
  uint32_t last_slice = kNoSlice;
  uint32_t slices = 0;
};

struct TensorPlan {
  std::vector<FileRange> ranges;
  std::vector<CheckSlice> slices;
  std::vector<PlannedPiece> pieces;
  std::vector<PlannedShard> shards;
  std::vector<ChunkCheck> checks;  // one for each chunk of the source
  std::array<std::vector<uint32_t>, kMaxPlanes> plane_chunks;

  void clear();
};

struct PlanLimits {
  uint64_t shard_buffer_bytes = 0;
  uint64_t piece_buffer_bytes = 0;
  std::array<uint64_t, kParts> entry_bytes = {};
};

// Rows that a coded chunk's blocks have in a pack (blockRows in shared/pack/pack-layout.ts): pieces of whole blocks need none twice.
int64_t expected_block_rows(int64_t columns);
// What a piece's buffer must hold for any matrix of these sizes.
uint64_t piece_buffer_bytes(int64_t rows, int64_t columns);

// Plans one matrix; `plan` keeps its memory from use to use. `entry_used`: bytes of the two entries that the expert's matrices
// before this one take; grows. Throws PACK_CORRUPT or MODEL_CORRUPT for chunks that do not make up the matrix or do not lie in
// whole rows, INTERNAL when something is larger than the limits.
void plan_tensor(const TensorSource& source, const LoadRequest& request, const PlanLimits& limits,
                 std::array<uint64_t, kParts>& entry_used, TensorPlan& plan);

inline const PartPlan& part_plan(const LoadRequest& request, Part part) {
  return part == Part::exponents ? request.exponents : request.sign_mantissa;
}

}  // namespace odmoe
