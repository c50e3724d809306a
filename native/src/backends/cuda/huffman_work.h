// The division of a coded plane among the thread blocks of a launch. Each block builds the code's table before it decodes anything.
#pragma once
#include <algorithm>

#include "decoding.h"
#include "kernels.h"

namespace odmoe::cuda {

inline constexpr uint32_t kHuffmanWarps = 4;
// Values that a thread block decodes in one turn: a group for each of its warps.
inline constexpr uint64_t kHuffmanTurnValues = uint64_t{kHuffmanWarps} * kHuffmanGroupStreams * kHuffmanStreamValues;
// Number of thread blocks that keeps a multiprocessor busy.
inline constexpr int kHuffmanBlocksOfMultiprocessor = 8;

// The number of turns that hold a wanted value.
inline uint64_t huffman_turns(const BlockToDecode& block) {
  const uint64_t end = std::min(block.skipped_bytes + block.plain_bytes, block.block_plain_bytes);
  if (end <= block.skipped_bytes) return 0;
  return (end + kHuffmanTurnValues - 1) / kHuffmanTurnValues - block.skipped_bytes / kHuffmanTurnValues;
}

// Number of thread blocks for each of `count` coded blocks with at most `turns` turns: no more than fill the device, all with
// nearly equal numbers of turns.
inline unsigned huffman_thread_blocks(uint64_t turns, int count, int multiprocessors) {
  const auto filling = static_cast<uint64_t>(std::max(1, multiprocessors * kHuffmanBlocksOfMultiprocessor / count));
  const uint64_t turns_each = (turns + filling - 1) / filling;
  return static_cast<unsigned>((turns + turns_each - 1) / turns_each);
}

}  // namespace odmoe::cuda
