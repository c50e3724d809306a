// The cache of an attention layer for a sequence: vectors of every position, in blocks of kAttentionChunk positions. They are the
// keys of all heads, then the values; for latent attention one vector, which is both; and behind them the key of an indexer where there
// is one. For attention to pools the vectors are the key, the values and gates of its pools, and those of its indexer; an entry of a
// pool stands in the place of the own values of its last position, which nothing needs any more. Sequences may share a block until one of them writes there. The owner of the object must lock it.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "odmoe/backend.h"
#include "odmoe/model_shape.h"
#include "odmoe/sequence_memory.h"

namespace odmoe {

// Vectors of one size that a position has.
struct CachedVectors {
  int64_t count = 0;
  int64_t floats = 0;
};

class KeyValueCache {
 public:
  KeyValueCache(std::shared_ptr<SequenceMemory> memory, const AttentionMixer& mixer, int max_positions);
  KeyValueCache(std::shared_ptr<SequenceMemory> memory, const LatentMixer& mixer, int max_positions);
  KeyValueCache(std::shared_ptr<SequenceMemory> memory, const PooledMixer& mixer, int max_positions);

  int64_t row_floats() const {
    int64_t floats = 0;
    for (const CachedVectors& kind : kinds_) floats += kind.count * kind.floats;
    return floats;
  }
  int written() const { return written_; }
  void set_written(int end) { written_ = end; }
  // The values of latent attention with an indexer are its keys.
  KeyValueLayer layer() const { return {keys_.data(), values_.data()}; }
  // The keys of a block indexer.
  KeyValueLayer index_layer() const { return {index_keys_.data(), nullptr}; }

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
  KeyValueCache(std::shared_ptr<SequenceMemory> memory, const CachedVectors& keys, const CachedVectors& values, int max_positions);
  uint64_t block_bytes() const { return float_bytes(row_floats() * kAttentionChunk); }
  // The missing or shared blocks of positions [position, end).
  std::vector<int> blocks_to_take(int position, int end) const;
  void set_block(int block, SequencePiece piece) noexcept;
  // Places of a range on the device: block by block, and within each block vector by vector.
  std::vector<SpacedRows> places(int position, int rows) const;
  // Visits each vector of a range in the order of places(): visit(byte offset of the vector in the range's rows, its bytes).
  template <typename Visit>
  void for_each_vector(int position, int rows, Visit visit) const;

  std::shared_ptr<SequenceMemory> memory_;
  std::vector<CachedVectors> kinds_;  // in the order of a row
  int64_t key_floats_;
  int64_t value_floats_;
  // As many entries as the model's longest sequence has blocks, so that the lists never move during a running pass.
  std::vector<SequencePiece> blocks_;
  std::vector<float*> keys_;
  std::vector<float*> values_;
  std::vector<float*> index_keys_;  // empty: there is no block indexer
  int written_ = 0;
};

}  // namespace odmoe
