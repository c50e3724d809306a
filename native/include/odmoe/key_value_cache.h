// What an attention layer keeps of a sequence: vectors of every position, in blocks of kAttentionChunk positions. Keys of all heads and
// then values; of latent attention one vector, which is both. Sequences may share a block until one of them writes there.
// Whoever owns it guards it.
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

  // Shares the blocks of the first `length` positions.
  KeyValueCache fork(int length) const;

  // Blocks of its own for positions [position, end), of which those before `position` are written: all or nothing. Returns what has
  // changed, for put_back(). Throws DEVICE_OUT_OF_MEMORY.
  std::vector<ReplacedPiece> reserve(int position, int end);
  void put_back(std::vector<ReplacedPiece>& replaced) noexcept;
  // What reserve() would take.
  uint64_t bytes_to_write(int position, int end) const;
  // Whether reserve() has nothing to do: not so once the sequence has been forked since.
  bool owns(int position, int end) const;
  // Rows that are written, row by row on the host.
  void read(int position, int rows, std::span<uint8_t> out) const;
  // Into memory that is reserved.
  void write(int position, int rows, std::span<const uint8_t> in);

 private:
  KeyValueCache(std::shared_ptr<SequenceMemory> memory, int64_t vectors, int64_t vector_floats, int max_positions);
  uint64_t block_bytes() const { return float_bytes(row_floats() * kAttentionChunk); }
  // Those that positions [position, end) lie in, and that are missing or shared.
  std::vector<int> blocks_to_take(int position, int end) const;
  void set_block(int block, SequencePiece piece) noexcept;
  // Where a range lies on the device: block by block, in each vector by vector.
  std::vector<SpacedRows> places(int position, int rows) const;
  // Each vector of a range in the order of places(): visit(byte where it stands in the range's rows).
  template <typename Visit>
  void for_each_vector(int position, int rows, Visit visit) const;

  std::shared_ptr<SequenceMemory> memory_;
  int64_t vectors_;
  int64_t vector_floats_;
  // As many entries as the model's longest sequence has blocks, so that they never move under a running pass.
  std::vector<SequencePiece> blocks_;
  std::vector<float*> keys_;
  std::vector<float*> values_;
  int written_ = 0;
};

}  // namespace odmoe
