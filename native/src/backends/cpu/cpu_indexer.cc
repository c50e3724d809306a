// Positions that an indexer chooses, cut into tasks.
#include <cstring>
#include <string>

#include "cpu_backend.h"
#include "odmoe/error.h"

namespace odmoe::cpu {
namespace {

// Most rows whose scores are kept at a time.
constexpr int kScoredRows = 8;

// Greater scores have greater keys.
uint32_t order_key(float score) {
  uint32_t bits = 0;
  const float value = score == score ? score + 0.0f : -__builtin_inff();
  std::memcpy(&bits, &value, sizeof bits);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The least key of a chosen position, and the number of chosen positions with just that key.
struct LeastKey {
  uint32_t key = 0;
  int64_t positions = 0;
};

// Finds the key byte by byte, from the highest byte on.
LeastKey least_chosen(const float* scores, int64_t positions, int64_t count) {
  LeastKey least{0, count};
  for (int shift = 24; shift >= 0; shift -= 8) {
    int64_t with_byte[256] = {};
    for (int64_t p = 0; p < positions; ++p) {
      const uint32_t key = order_key(scores[p]);
      const bool same_above = shift == 24 || (key ^ least.key) >> (shift + 8) == 0;
      if (same_above) ++with_byte[key >> shift & 255];
    }
    uint32_t byte = 255;
    for (; with_byte[byte] < least.positions; --byte) least.positions -= with_byte[byte];
    least.key |= byte << shift;
  }
  return least;
}

void choose_best(int32_t* chosen, const float* scores, int64_t positions, int64_t count) {
  LeastKey least = least_chosen(scores, positions, count);
  for (int64_t p = 0; p < positions; ++p) {
    const uint32_t key = order_key(scores[p]);
    if (key < least.key || (key == least.key && least.positions-- <= 0)) continue;
    *chosen++ = static_cast<int32_t>(p);
  }
}

// The scores of positions become those of their blocks, in place.
void score_blocks(float* scores, int64_t positions, int64_t block_size) {
  for (int64_t block = 0; block * block_size < positions; ++block) {
    const int64_t end = std::min(positions, (block + 1) * block_size);
    float greatest = -__builtin_inff();
    for (int64_t p = block * block_size; p < end; ++p) greatest = scores[p] > greatest ? scores[p] : greatest;
    scores[block] = greatest;
  }
}

// Chooses blocks for one head, and gives their positions.
void choose_best_blocks(int32_t* chosen, float* scores, int32_t position, const BlockChoiceWork& work) {
  score_blocks(scores, int64_t{position} + 1, work.block_size);
  const int32_t others = position / work.block_size + 1 - work.local_blocks;
  const int best = work.blocks - work.local_blocks;
  // The blocks stand behind the last places, so that each is read before positions reach it.
  int32_t* const blocks = chosen + work.count() - work.blocks;
  if (best > 0) choose_best(blocks, scores, others, best);
  for (int32_t i = 0; i < work.local_blocks; ++i) blocks[best + i] = others + i;
  for (int i = 0; i < work.blocks; ++i) {
    const int64_t first = int64_t{blocks[i]} * work.block_size;
    for (int64_t j = 0; j < work.block_size; ++j) *chosen++ = static_cast<int32_t>(std::min<int64_t>(first + j, position));
  }
}

void check_dimensions(int head_dim) {
  if (head_dim <= kMostIndexDimensions) return;
  throw Error(ErrorCode::model_unsupported, "the heads of an indexer have at most " + std::to_string(kMostIndexDimensions) +
                                                " dimensions, not " + std::to_string(head_dim));
}

// Chunks of the row with most positions.
int64_t most_chunks(const AttentionRow* rows, int n) {
  int64_t chunks = 0;
  for (int i = 0; i < n; ++i) chunks = std::max<int64_t>(chunks, rows[i].position / kAttentionChunk + 1);
  return chunks;
}

}  // namespace

void CpuBackend::choose_positions(const ChoiceWork& work) {
  check_dimensions(work.head_dim);
  const int64_t chunks = most_chunks(work.host_rows, work.n);
  const int64_t width = chunks * kAttentionChunk;
  const int rows = std::min(work.n, kScoredRows);
  reserve(attention_scratch_, static_cast<uint64_t>(rows * width) * sizeof(float));
  float* const scores = static_cast<float*>(attention_scratch_.data);
  for (int first = 0; first < work.n; first += rows) {
    const int some = std::min(rows, work.n - first);
    pool_.run(some * chunks, [=, &work, this](int64_t task, int thread) {
      const int64_t row = first + task / chunks;
      const int64_t chunk = task % chunks;
      const AttentionRow& of = work.host_rows[row];
      const int64_t positions = std::min<int64_t>(kAttentionChunk, of.position + 1 - chunk * kAttentionChunk);
      if (of.position < work.count || positions <= 0) return;
      kernels_.index_scores(
          {scores + task * kAttentionChunk, of.cache.key_blocks[chunk], work.queries + row * work.heads * work.head_dim,
           work.weights + row * work.heads, work.heads, work.head_dim, static_cast<int>(positions)},
          thread_scratch(thread));
    });
    pool_.run(some, [=, &work](int64_t task, int) {
      const int64_t row = first + task;
      const int32_t position = work.host_rows[row].position;
      if (position >= work.count) choose_best(work.chosen + row * work.count, scores + task * width, position + 1, work.count);
    });
  }
}

void CpuBackend::choose_blocks(const BlockChoiceWork& work) {
  check_dimensions(work.head_dim);
  const int64_t chunks = most_chunks(work.host_rows, work.n);
  const int64_t width = chunks * kAttentionChunk;
  const int rows = std::min(work.n, kScoredRows);
  reserve(attention_scratch_, static_cast<uint64_t>(rows * work.heads * width) * sizeof(float));
  float* const scores = static_cast<float*>(attention_scratch_.data);
  for (int first = 0; first < work.n; first += rows) {
    const int some = std::min(rows, work.n - first);
    pool_.run(some * chunks, [=, &work, this](int64_t task, int thread) {
      const int64_t row = first + task / chunks;
      const int64_t chunk = task % chunks;
      const AttentionRow& of = work.host_rows[row];
      const int64_t positions = std::min<int64_t>(kAttentionChunk, of.position + 1 - chunk * kAttentionChunk);
      if (of.position < work.count() || positions <= 0) return;
      kernels_.index_dots(
          {scores + (row - first) * work.heads * width + chunk * kAttentionChunk, of.cache.key_blocks[chunk],
           work.queries + row * work.heads * work.head_dim, nullptr, work.heads, work.head_dim, static_cast<int>(positions), width},
          thread_scratch(thread));
    });
    pool_.run(int64_t{some} * work.heads, [=, &work](int64_t task, int) {
      const int64_t place = int64_t{first} * work.heads + task;
      const int32_t position = work.host_rows[place / work.heads].position;
      if (position < work.count()) return;
      choose_best_blocks(work.chosen + place * work.count(), scores + task * width, position, work);
    });
  }
}

void CpuBackend::gather_keys(float* out, const AttentionRow* host_rows, const int32_t* chosen, int n, int count, int size) {
  for_ranges(int64_t{n} * count, size, [=](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / count;
      const int64_t position = chosen[i];
      const float* const block = host_rows[row].cache.key_blocks[position / kAttentionChunk];
      std::memcpy(out + row * gathered_floats(count, size) + i % count * size, block + position % kAttentionChunk * size,
                  static_cast<size_t>(size) * sizeof(float));
    }
  });
}

}  // namespace odmoe::cpu
