// Attention to pools of positions: their entries, and copies of what a row sees.
#include <cstring>

#include "cpu_backend.h"

namespace odmoe::cpu {

void CpuBackend::pool(const PoolWork& work) {
  for_pieces(work.n, work.size, [&](int64_t row, int64_t begin, int64_t end) { kernels_.pool(work, row, begin, end); });
}

void CpuBackend::gather_seen(const SeenWork& work) {
  const uint64_t bytes = static_cast<uint64_t>(work.size) * sizeof(float);
  for_ranges(work.n, seen_room(work, work.furthest()) * work.size, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const AttentionRow& of = work.host_rows[row];
      float* out = work.out + row * work.out_stride;
      const auto copy = [&](float* const* blocks, int64_t position) {
        std::memcpy(out, blocks[position / kAttentionChunk] + position % kAttentionChunk * work.size, bytes);
        out += work.size;
      };
      const int64_t complete = (of.position + 1) / work.positions;
      const int64_t entries = seen_entries(work, of.position);
      const int32_t* const chosen = entries < complete ? work.chosen + row * work.entries : nullptr;
      for (int64_t i = 0; i < entries; ++i) {
        const int64_t entry = chosen == nullptr ? i : chosen[i];
        const int64_t last = (entry + 1) * work.positions - 1;
        if (!work.whole_pools) {
          copy(of.cache.value_blocks, last);
          continue;
        }
        for (int64_t p = last + 1 - work.positions; p <= last; ++p) copy(of.cache.key_blocks, p);
      }
      for (int64_t p = of.position + 1 - seen_window(work, of.position); p <= of.position; ++p) copy(of.cache.key_blocks, p);
    }
  });
}

}  // namespace odmoe::cpu
