// What a decompression thread does with a piece: sums up its stored bytes, decodes its rows block by block and writes them to the
// slot.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "load_plan.h"
#include "odmoe/codec.h"
#include "odmoe/store.h"

namespace odmoe {

// Planes of a matrix that are stored coded: exponents, and one more of FP16.
inline constexpr size_t kCodedPlanes = 2;
// Memory for a decoded block of each. A pack's blocks are near 128 KiB, or 16 rows where those are more, or the whole matrix.
uint64_t decoded_block_bytes(int64_t rows, int64_t columns);

// The memory that places of a plan lie in, while one piece is worked on.
using HolderMemory = std::array<uint8_t*, kHolders>;
inline uint8_t* address(const HolderMemory& memory, const Place& place) {
  return memory[static_cast<size_t>(place.holder)] + place.offset;
}

struct PieceWork {
  const TensorSource* source = nullptr;
  const TensorPlan* plan = nullptr;
  uint32_t piece = 0;
  uint64_t serial = 0;  // tells matrices of different loads apart
  HolderMemory memory = {};
  Matrix* matrix = nullptr;  // null: the stored bytes are checked, and that is all
  int64_t first_row = 0;     // of the matrix that is loaded, in `matrix`
  std::span<uint32_t> slice_crcs;
  std::span<uint32_t> slices_left;  // by chunk, shared by all threads
};

// Of one thread. All memory is taken beforehand.
class PieceRecovery {
 public:
  // `scratch`: kCodedPlanes x scratch_bytes.
  PieceRecovery(Backend& backend, uint8_t* scratch, uint64_t scratch_bytes)
      : backend_(backend), scratch_(scratch), scratch_bytes_(scratch_bytes) {}

  // Throws PACK_CORRUPT, also where the checksum of a chunk whose last slice this is does not match, or a quantized weight is none.
  void recover(const PieceWork& work);

 private:
  // A coded chunk that is open, and the block of it that has been decoded last.
  struct OpenChunk {
    ChunkDecoder decoder;
    uint64_t serial = 0;
    uint32_t chunk = 0;
    bool open = false;
    int64_t first_row = 0;  // of the block, in the matrix
    int64_t end_row = 0;
    const uint8_t* rows = nullptr;
  };

  // The blocks of a coded plane that the device is given in one call.
  static constexpr int kMostBlocks = 32;
  using Blocks = std::array<CodedBlock, kMostBlocks>;

  void check_slices(const PieceWork& work);
  bool device_decodes(const PieceWork& work) const;
  // Finds the rows from `row` on in every plane, plain or, for a device that decodes them, as blocks; to `end_row` or as many as can
  // be written together. Returns the row after them.
  int64_t find_planes(const PieceWork& work, int64_t row, int64_t end_row, bool on_device, PlaneSource* sources);
  void write(const PieceWork& work, int64_t row, int64_t rows, bool on_device, const PlaneSource* sources);
  void open_chunk(const PieceWork& work, const CodedChunk& coded, OpenChunk& open);
  // Rows of a block; throws PACK_CORRUPT where a block is no whole number of rows.
  int64_t block_rows_of(const PieceWork& work, int plane, const OpenChunk& open) const;
  // Names the blocks of a coded plane from `row` on, to `end_row` or as many as a call takes; returns the row after them.
  int64_t name_blocks(const PieceWork& work, int plane, int64_t row, int64_t end_row, size_t coded_plane, PlaneSource& source);
  // Decodes the block that has `row`, unless it is the one decoded last; returns the row after the block.
  int64_t decode_rows(const PieceWork& work, int plane, int64_t row, size_t coded_plane, PlaneSource& source);

  Backend& backend_;
  uint8_t* scratch_;
  uint64_t scratch_bytes_;
  std::array<OpenChunk, kCodedPlanes> open_;
  std::array<Blocks, kCodedPlanes> blocks_;
};

}  // namespace odmoe
