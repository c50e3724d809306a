// Attention to pools of positions: their entries, and copies of what a row sees.
#include <cstring>

#include "cpu_backend.h"

namespace odmoe::cpu {
namespace {

// A row's vectors, in the order in which it sees them.
class SeenVectors {
 public:
  SeenVectors(const SeenWork& work, int64_t row)
      : work_(work),
        row_(work.host_rows[row]),
        entries_(seen_entries(work, row_.position)),
        chosen_(entries_ < (row_.position + 1) / work.positions ? work.chosen + row * work.entries : nullptr),
        pooled_(entries_ * (work.whole_pools ? work.positions : 1)),
        count_(most_seen(work, row_.position)) {}

  int64_t count() const { return count_; }

  const float* at(int64_t place) const {
    if (place >= pooled_) return in(row_.cache.key_blocks, row_.position + 1 - count_ + place);
    if (!work_.whole_pools) return in(row_.cache.value_blocks, (pool(place) + 1) * work_.positions - 1);
    return in(row_.cache.key_blocks, pool(place / work_.positions) * work_.positions + place % work_.positions);
  }

 private:
  int64_t pool(int64_t entry) const { return chosen_ == nullptr ? entry : chosen_[entry]; }

  const float* in(float* const* blocks, int64_t position) const {
    return blocks[position / kAttentionChunk] + position % kAttentionChunk * work_.size;
  }

  const SeenWork& work_;
  const AttentionRow& row_;
  int64_t entries_;
  const int32_t* chosen_;
  int64_t pooled_;  // vectors that belong to complete pools
  int64_t count_;
};

}  // namespace

void CpuBackend::pool(const PoolWork& work) {
  for_pieces(work.n, work.size, [&](int64_t row, int64_t begin, int64_t end) { kernels_.pool(work, row, begin, end); });
}

void CpuBackend::gather_seen(const SeenWork& work) {
  // A decode pass has one row, so a row's vectors are split among the threads.
  const int64_t some = std::max<int64_t>(1, kTaskElements / work.size);
  const int64_t pieces = (seen_room(work, work.furthest()) + some - 1) / some;
  const uint64_t bytes = static_cast<uint64_t>(work.size) * sizeof(float);
  pool_.run(work.n * pieces, [=, &work](int64_t task, int) {
    const int64_t row = task / pieces;
    const SeenVectors vectors(work, row);
    const int64_t begin = task % pieces * some;
    const int64_t end = std::min(vectors.count(), begin + some);
    for (int64_t place = begin; place < end; ++place) {
      std::memcpy(work.out + row * work.out_stride + place * work.size, vectors.at(place), bytes);
    }
  });
}

}  // namespace odmoe::cpu
