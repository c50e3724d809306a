// The blocks that one launch decodes, as a kernel's argument, and the code with which all decoding kernels write decoded values.
#pragma once
#include "decoding.h"
#include "kernels.h"

namespace odmoe::cuda {

struct BlockList {
  BlockToDecode blocks[kMostBlocksToDecode];
  const uint8_t* table = nullptr;
};
static_assert(sizeof(BlockList) <= 4096, "a kernel takes 4 KiB of arguments at most");

inline uint64_t most_plain_bytes(const BlockToDecode* blocks, int count) {
  uint64_t most = 0;
  for (int i = 0; i < count; ++i) most = blocks[i].block_plain_bytes > most ? blocks[i].block_plain_bytes : most;
  return most;
}

inline BlockList listed(const BlockToDecode* blocks, int count, const uint8_t* table) {
  BlockList list{};
  for (int i = 0; i < count; ++i) list.blocks[i] = blocks[i];
  list.table = table;
  return list;
}

#if defined(__CUDACC__) || defined(ODMOE_SIMULATED_CUDA)
// The wanted values of a block, from the first one to the end.
struct WantedValues {
  uint64_t begin;
  uint64_t end;
};

__device__ __forceinline__ WantedValues wanted_of(const BlockToDecode& block) {
  const uint64_t end = block.skipped_bytes + block.plain_bytes;
  return {block.skipped_bytes, end < block.block_plain_bytes ? end : block.block_plain_bytes};
}

// Writes sixteen values of the block, from value `first` on; values that are not wanted are left out.
__device__ __forceinline__ void write_sixteen(const BlockToDecode& block, const WantedValues& wanted, uint64_t first,
                                              uint4 values) {
  if (first >= wanted.begin && first + 16 <= wanted.end) {
    uint8_t* const out = block.plain + (first - wanted.begin);
    if ((reinterpret_cast<uintptr_t>(out) & 15) == 0) {
      *reinterpret_cast<uint4*>(out) = values;
      return;
    }
  }
  // This is rare: only at the ends of the wanted range.
#pragma unroll 1
  for (uint32_t i = 0; i < 16; ++i) {
    const uint64_t at = first + i;
    if (at < wanted.begin || at >= wanted.end) continue;
    const uint32_t word = i < 8 ? (i < 4 ? values.x : values.y) : (i < 12 ? values.z : values.w);
    block.plain[at - wanted.begin] = static_cast<uint8_t>(word >> 8 * (i & 3));
  }
}
#endif

}  // namespace odmoe::cuda
