// Plans the reads for one matrix of an expert: their pieces, and the places of the bytes. Pure: no file is touched.
//
// A *shard* is a range of rows whose coded chunks belong to it alone. It is cut into *pieces*, ranges of rows that are checked,
// decoded and written to the slot in one operation. Before that, the coded chunks of its shard and its own part of every raw plane
// must have been read. This is the directed graph of ZipMoE, figure 6, with one edge less for each part that an entry holds.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "odmoe/expert_load.h"
#include "odmoe/store.h"

namespace odmoe {

// Offsets, lengths and addresses of all reads are multiples of this; direct I/O requires that.
inline constexpr uint64_t kReadAlignment = 4096;
// Bytes of raw planes in a piece, where the rows allow it.
inline constexpr uint64_t kPieceBytes = 512 * 1024;

inline constexpr std::array<Part, kParts> kBothParts = {Part::exponents, Part::sign_mantissa};
inline size_t index_of(Part part) { return static_cast<size_t>(part); }

// The memory that holds bytes: a staging buffer for the coded chunks of a shard, one for the raw planes of a piece, or an entry.
enum class Holder : uint8_t { shard_buffer, piece_buffer, exponent_entry, sign_mantissa_entry };
inline constexpr size_t kHolders = 4;

struct Place {
  Holder holder = Holder::piece_buffer;
  uint64_t offset = 0;
};

// A range of a file for one read. Only its bytes in [useful_begin, useful_end) belong to chunks and are counted.
struct FileRange {
  uint32_t chunk = 0;  // the first chunk of the useful bytes; a range may have several consecutive chunks of a raw plane
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t useful_begin = 0;
  uint64_t useful_end = 0;
  Place place;
};

inline constexpr uint32_t kNoSlice = UINT32_MAX;

// A range of one chunk's stored bytes whose checksum is computed at once; `next` follows it in the chunk.
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
  std::array<IndexSpan, kParts> ranges;    // in TensorPlan::ranges; a shard's first piece also has those of its coded chunks
  IndexSpan slices;                        // in TensorPlan::slices
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
  std::array<bool, kMaxPlanes> wanted = {};  // planes of the parts that the request wants

  void clear();
};

struct PlanLimits {
  uint64_t shard_buffer_bytes = 0;
  uint64_t piece_buffer_bytes = 0;
  std::array<uint64_t, kParts> entry_bytes = {};
};

// Rows of a coded chunk's blocks in a pack (blockRows in shared/pack/pack-layout.ts): pieces of whole blocks decode no block twice.
int64_t expected_block_rows(int64_t columns);
// Bytes that a piece's buffer must have for any matrix of these sizes.
uint64_t piece_buffer_bytes(int64_t rows, int64_t columns);

// Plans one matrix; `plan` keeps its allocated memory from use to use. `entry_used`: bytes of the two entries that the expert's
// earlier matrices use; this call adds to it. Throws PACK_CORRUPT or MODEL_CORRUPT for chunks that do not make up the matrix or do
// not consist of whole rows, INTERNAL when a size is over the limits.
void plan_tensor(const TensorSource& source, const LoadRequest& request, const PlanLimits& limits,
                 std::array<uint64_t, kParts>& entry_used, TensorPlan& plan);

inline const PartPlan& part_plan(const LoadRequest& request, Part part) {
  return part == Part::exponents ? request.exponents : request.sign_mantissa;
}

}  // namespace odmoe
