#include "odmoe/key_value_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "odmoe/arithmetic.h"

namespace odmoe {
namespace {

// Visits the part of a range in each block: visit(block, first position in the block, first position in the range, count).
template <typename Visit>
void for_each_run(int position, int rows, Visit visit) {
  for (int done = 0; done < rows;) {
    const int at = position + done;
    const int in_block = at % kAttentionChunk;
    const int run = std::min(rows - done, kAttentionChunk - in_block);
    visit(static_cast<size_t>(at / kAttentionChunk), in_block, done, run);
    done += run;
  }
}

// An indexer's vectors for each position stand where the values of other attention do.
CachedVectors index_keys(const LatentMixer& mixer) {
  return mixer.indexer ? CachedVectors{mixer.indexer->vectors(), mixer.indexer->head_dim} : CachedVectors{};
}

}  // namespace

KeyValueCache::KeyValueCache(std::shared_ptr<SequenceMemory> memory, const AttentionMixer& mixer, int max_positions)
    : KeyValueCache(std::move(memory), {mixer.kv_heads, mixer.head_dim}, {mixer.kv_heads, mixer.value_head()}, max_positions) {
  if (!mixer.block_indexer) return;
  kinds_.push_back({1, mixer.block_indexer->head_dim});
  index_keys_.resize(blocks_.size());
}

KeyValueCache::KeyValueCache(std::shared_ptr<SequenceMemory> memory, const LatentMixer& mixer, int max_positions)
    : KeyValueCache(std::move(memory), {1, mixer.key_size()}, index_keys(mixer), max_positions) {}

KeyValueCache::KeyValueCache(std::shared_ptr<SequenceMemory> memory, const PooledMixer& mixer, int max_positions)
    : KeyValueCache(std::move(memory), {1 + mixer.pool_vectors(), mixer.head_dim}, {mixer.index_vectors(), mixer.index_dim()},
                    max_positions) {}

KeyValueCache::KeyValueCache(std::shared_ptr<SequenceMemory> memory, const CachedVectors& keys, const CachedVectors& values,
                             int max_positions)
    : memory_(std::move(memory)), key_floats_(keys.count * keys.floats), value_floats_(values.count * values.floats) {
  // One copy serves both where they have one size.
  if (keys.floats == values.floats) {
    kinds_ = {{keys.count + values.count, keys.floats}};
  } else {
    kinds_ = {keys};
    if (values.count > 0) kinds_.push_back(values);
  }
  const auto blocks = static_cast<size_t>((max_positions + kAttentionChunk - 1) / kAttentionChunk);
  blocks_.resize(blocks);
  keys_.resize(blocks);
  values_.resize(blocks);
}

KeyValueCache KeyValueCache::fork(int length) const {
  KeyValueCache fork(*this);
  const auto kept = static_cast<size_t>((length + kAttentionChunk - 1) / kAttentionChunk);
  for (size_t block = kept; block < blocks_.size(); block++) fork.set_block(static_cast<int>(block), {});
  fork.written_ = length;
  return fork;
}

std::vector<int> KeyValueCache::blocks_to_take(int position, int end) const {
  std::vector<int> blocks;
  if (position == end) return blocks;
  for (int block = position / kAttentionChunk; block * kAttentionChunk < end; block++) {
    const SequencePiece& piece = blocks_[static_cast<size_t>(block)];
    if (piece.empty() || piece.shared()) blocks.push_back(block);
  }
  return blocks;
}

std::vector<ReplacedPiece> KeyValueCache::reserve(int position, int end) {
  std::vector<ReplacedPiece> replaced;
  const std::vector<int> blocks = blocks_to_take(position, end);
  replaced.reserve(blocks.size());
  try {
    for (const int block : blocks) {
      const SequencePiece& before = blocks_[static_cast<size_t>(block)];
      const bool has_rows = block * kAttentionChunk < written_;
      SequencePiece piece = has_rows ? memory_->copy(before) : memory_->allocate(block_bytes());
      replaced.push_back({block, before});
      set_block(block, std::move(piece));
    }
  } catch (...) {
    put_back(replaced);
    throw;
  }
  return replaced;
}

void KeyValueCache::put_back(std::vector<ReplacedPiece>& replaced) noexcept {
  for (ReplacedPiece& piece : replaced) set_block(piece.place, std::move(piece.before));
}

uint64_t KeyValueCache::bytes_to_write(int position, int end) const {
  return blocks_to_take(position, end).size() * memory_->backend().counted_bytes(block_bytes());
}

bool KeyValueCache::owns(int position, int end) const { return blocks_to_take(position, end).empty(); }

void KeyValueCache::set_block(int block, SequencePiece piece) noexcept {
  const auto index = static_cast<size_t>(block);
  keys_[index] = piece.empty() ? nullptr : piece.floats();
  // A block's values are behind its keys; without values of their own nobody reads there.
  values_[index] = piece.empty() ? nullptr : keys_[index] + key_floats_ * kAttentionChunk;
  if (!index_keys_.empty()) {
    index_keys_[index] = piece.empty() ? nullptr : values_[index] + value_floats_ * kAttentionChunk;
  }
  blocks_[index] = std::move(piece);
}

std::vector<SpacedRows> KeyValueCache::places(int position, int rows) const {
  std::vector<SpacedRows> places;
  for_each_run(position, rows, [&](size_t block, int in_block, int, int run) {
    float* first = blocks_[block].floats();
    for (const CachedVectors& kind : kinds_) {
      const uint64_t vector_bytes = float_bytes(kind.floats);
      places.push_back({.first = first + in_block * kind.floats,
                        .count = kind.count,
                        .row_bytes = static_cast<uint64_t>(run) * vector_bytes,
                        .pitch_bytes = kAttentionChunk * vector_bytes});
      first += kind.count * kind.floats * kAttentionChunk;
    }
  });
  return places;
}

template <typename Visit>
void KeyValueCache::for_each_vector(int position, int rows, Visit visit) const {
  const int64_t row_size = row_floats();
  for_each_run(position, rows, [&](size_t, int, int done, int run) {
    int64_t at = 0;
    for (const CachedVectors& kind : kinds_) {
      for (int64_t vector = 0; vector < kind.count; vector++, at += kind.floats) {
        for (int row = done; row < done + run; row++) visit(float_bytes(row * row_size + at), float_bytes(kind.floats));
      }
    }
  });
}

void KeyValueCache::read(int position, int rows, std::span<uint8_t> out) const {
  const auto gathered = std::make_unique_for_overwrite<uint8_t[]>(out.size());
  memory_->backend().gather_to_host(gathered.get(), places(position, rows));
  const uint8_t* from = gathered.get();
  for_each_vector(position, rows, [&](uint64_t at, uint64_t bytes) {
    std::memcpy(out.data() + at, from, bytes);
    from += bytes;
  });
}

void KeyValueCache::write(int position, int rows, std::span<const uint8_t> in) {
  const auto scattered = std::make_unique_for_overwrite<uint8_t[]>(in.size());
  uint8_t* to = scattered.get();
  for_each_vector(position, rows, [&](uint64_t at, uint64_t bytes) {
    std::memcpy(to, in.data() + at, bytes);
    to += bytes;
  });
  memory_->backend().scatter_to_device(places(position, rows), scattered.get());
}

}  // namespace odmoe
