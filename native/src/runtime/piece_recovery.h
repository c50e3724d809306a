// The work of a decompression thread on a piece: it computes checksums of the stored bytes, decodes the rows block by block and
// writes them to the slot.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "load_plan.h"
#include "odmoe/codec.h"
#include "odmoe/store.h"

namespace odmoe {

// Most coded planes of a matrix: exponents, and one more plane of FP16.
inline constexpr size_t kCodedPlanes = 2;
// Bytes for a decoded block of each plane. A pack's blocks have about 128 KiB, or 16 rows if those are more, or the whole matrix.
uint64_t decoded_block_bytes(int64_t rows, int64_t columns);

// The memory of each holder, during the work on one piece.
using HolderMemory = std::array<uint8_t*, kHolders>;
inline uint8_t* address(const HolderMemory& memory, const Place& place) {
  return memory[static_cast<size_t>(place.holder)] + place.offset;
}

struct PieceWork {
  const TensorSource* source = nullptr;
  const TensorPlan* plan = nullptr;
  uint32_t piece = 0;
  uint64_t serial = 0;  // distinguishes matrices of different loads
  HolderMemory memory = {};
  Matrix* matrix = nullptr;  // null: the stored bytes are only checked
  int64_t first_row = 0;     // row of `matrix` at which the loaded matrix begins
  std::span<uint32_t> slice_crcs;
  std::span<uint32_t> slices_left;  // by chunk, shared by all threads
};

// For one thread. It allocates no memory.
class PieceRecovery {
 public:
  // `scratch`: kCodedPlanes x scratch_bytes.
  PieceRecovery(Backend& backend, uint8_t* scratch, uint64_t scratch_bytes)
      : backend_(backend), scratch_(scratch), scratch_bytes_(scratch_bytes) {}

  // Throws PACK_CORRUPT, also if this piece has the last slice of a chunk whose checksum does not match, or has an invalid
  // quantized weight.
  void recover(const PieceWork& work);

 private:
  // An open coded chunk, and its last decoded block.
  struct OpenChunk {
    ChunkDecoder decoder;
    uint64_t serial = 0;
    uint32_t chunk = 0;
    bool open = false;
    int64_t first_row = 0;  // first row of the block in the matrix
    int64_t end_row = 0;
    const uint8_t* rows = nullptr;
  };

  // Most blocks of a coded plane in one call of the device.
  static constexpr int kMostBlocks = 32;
  using Blocks = std::array<CodedBlock, kMostBlocks>;

  void check_slices(const PieceWork& work);
  bool device_decodes(const PieceWork& work) const;
  // Finds the rows from `row` on in every plane, plain or, for a device that decodes them, as blocks; up to `end_row`, or as many
  // as can be written together. Returns the row after them.
  int64_t find_planes(const PieceWork& work, int64_t row, int64_t end_row, bool on_device, PlaneSource* sources);
  void write(const PieceWork& work, int64_t row, int64_t rows, bool on_device, const PlaneSource* sources);
  void open_chunk(const PieceWork& work, const CodedChunk& coded, OpenChunk& open);
  // Rows of a block; throws PACK_CORRUPT if a block does not consist of whole rows.
  int64_t block_rows_of(const PieceWork& work, int plane, const OpenChunk& open) const;
  // Lists the blocks of a coded plane from `row` on, up to `end_row` or the most of one call; returns the row after them.
  int64_t name_blocks(const PieceWork& work, int plane, int64_t row, int64_t end_row, size_t coded_plane, PlaneSource& source);
  // Decodes the block with `row`, unless it is the last decoded one; returns the row after the block.
  int64_t decode_rows(const PieceWork& work, int plane, int64_t row, size_t coded_plane, PlaneSource& source);

  Backend& backend_;
  uint8_t* scratch_;
  uint64_t scratch_bytes_;
  std::array<OpenChunk, kCodedPlanes> open_;
  std::array<Blocks, kCodedPlanes> blocks_;
};

}  // namespace odmoe
