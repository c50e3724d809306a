// The cache of an attention layer for a sequence: vectors of every position, in blocks of kAttentionChunk positions. They are the
// keys of all heads, then the values; for latent attention one vector, which is both. Sequences may share a block until one of them
// writes there. The owner of the object must lock it.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "odmoe/backend.h"
#include "odmoe/model_shape.h"
#include "odmoe/sequence_memory.h"

namespace odmoe {

class KeyValueCache {
 public:
  KeyValueCache(std::shared_ptr<SequenceMemory> memory, const AttentionMixer& mixer, int max_positions);
  KeyValueCache(std::shared_ptr<SequenceMemory> memory, const LatentMixer& mixer, int max_positions);

  int64_t row_floats() const { return vectors_ * vector_floats_; }
  int written() const { return written_; }
  void set_written(int end) { written_ = end; }
  KeyValueLayer layer() const { return {keys_.data(), values_.data()}; }

  // Returns a cache that shares the blocks of the first `length` positions.
  KeyValueCache fork(int length) const;

  // Allocates unshared blocks for positions [position, end), all or none; positions before `position` are already written. Returns
  // the replaced pieces, for put_back(). Throws DEVICE_OUT_OF_MEMORY.
  std::vector<ReplacedPiece> reserve(int position, int end);
  void put_back(std::vector<ReplacedPiece>& replaced) noexcept;
  // Bytes that reserve() would take.
  uint64_t bytes_to_write(int position, int end) const;
  // True if reserve() would have nothing to do; false again after a later fork of the sequence.
  bool owns(int position, int end) const;
  // Reads written rows; on the host they follow one another.
  void read(int position, int rows, std::span<uint8_t> out) const;
  // Writes rows into reserved memory.
  void write(int position, int rows, std::span<const uint8_t> in);

 private:
  KeyValueCache(std::shared_ptr<SequenceMemory> memory, int64_t vectors, int64_t vector_floats, int max_positions);
  uint64_t block_bytes() const { return float_bytes(row_floats() * kAttentionChunk); }
  // The missing or shared blocks of positions [position, end).
  std::vector<int> blocks_to_take(int position, int end) const;
  void set_block(int block, SequencePiece piece) noexcept;
  // Places of a range on the device: block by block, and within each block vector by vector.
  std::vector<SpacedRows> places(int position, int rows) const;
  // Visits each vector of a range in the order of places(): visit(byte offset of the vector in the range's rows).
  template <typename Visit>
  void for_each_vector(int position, int rows, Visit visit) const;

  std::shared_ptr<SequenceMemory> memory_;
  int64_t vectors_;
  int64_t vector_floats_;
  // As many entries as the model's longest sequence has blocks, so that the lists never move during a running pass.
  std::vector<SequencePiece> blocks_;
  std::vector<float*> keys_;
  std::vector<float*> values_;
  int written_ = 0;
};

}  // namespace odmoe
