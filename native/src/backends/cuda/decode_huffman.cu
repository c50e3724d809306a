// huffman: a warp decodes a group of 32 streams, one per lane, and looks up eleven bits at a time.
#include "block_list.h"
#include "huffman_work.h"

namespace odmoe::cuda {
namespace {

constexpr uint32_t kThreads = kHuffmanWarps * kWarp;
constexpr uint32_t kValues = 256;
constexpr uint32_t kTableBytes = 128;
// Values that each lane decodes before the warp writes them out: whole sectors of device memory.
constexpr uint32_t kRoundValues = 32;
constexpr uint32_t kRoundWords = kRoundValues / 4;
constexpr uint32_t kPaddedWords = kRoundWords + 1;  // padded, so that lanes write to different banks

struct CodeTable {
  HuffmanLengths lengths;
  uint32_t counts[kHuffmanLongestCode + 1];
  uint8_t of_value[kValues];  // code lengths
  uint8_t values[kValues];    // in the code's order
  uint16_t entries[kHuffmanLookupEntries];
};

// Votes give each value's place among the values of its length. A length past the longest, which only a damaged table has, counts
// as no code. A warp handles every fourth length.
__device__ void order_values(CodeTable& table) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t first_length = 1 + threadIdx.x / kWarp;
  constexpr uint32_t kRows = kValues / kWarp;
  uint32_t own[kRows];
#pragma unroll
  for (uint32_t row = 0; row < kRows; ++row) own[row] = table.of_value[row * kWarp + lane];
  for (uint32_t length = first_length; length <= kHuffmanLongestCode; length += kHuffmanWarps) {
    uint32_t count = 0;
#pragma unroll
    for (uint32_t row = 0; row < kRows; ++row) {
      count += static_cast<uint32_t>(__popc(__ballot_sync(kFullWarp, own[row] == length)));
    }
    if (lane == 0) table.counts[length] = count;
  }
  __syncthreads();
  if (threadIdx.x == 0) describe_lengths(table.lengths, table.counts);
  const uint32_t below = (1u << lane) - 1;
  for (uint32_t length = first_length; length <= kHuffmanLongestCode; length += kHuffmanWarps) {
    uint32_t place = 0;
    for (uint32_t shorter = 1; shorter < length; ++shorter) place += table.counts[shorter];
#pragma unroll
    for (uint32_t row = 0; row < kRows; ++row) {
      const uint32_t same = __ballot_sync(kFullWarp, own[row] == length);
      const uint32_t own_place = place + static_cast<uint32_t>(__popc(same & below));
      if (own[row] == length) table.values[own_place & 0xff] = static_cast<uint8_t>(row * kWarp + lane);
      place += static_cast<uint32_t>(__popc(same));
    }
  }
  __syncthreads();
}

// A thread makes the entries of consecutive numbers "in order", so that it seldom has to search for a longer code; the entries of
// its warp are adjacent.
__device__ void write_entries(CodeTable& table) {
  constexpr uint32_t kEntries = kHuffmanLookupEntries / kThreads;
  const uint32_t first = reversed_code_bits(threadIdx.x);
  uint32_t length = 1;
  for (uint32_t i = 0; i < kEntries; ++i) {
    const uint32_t in_order = first + i;
    length = huffman_length(in_order, length, table.lengths);
    const uint32_t entry = huffman_entry(in_order, length, table.lengths, table.values);
    table.entries[reversed_code_bits(in_order)] = static_cast<uint16_t>(entry);
  }
}
static_assert((kThreads & (kThreads - 1)) == 0, "a thread's number reversed ends with the zeros that its entries differ in");

__device__ void build_table(CodeTable& table, const uint8_t* stored) {
  for (uint32_t i = threadIdx.x; i < kTableBytes; i += kThreads) {
    table.of_value[2 * i] = stored[i] & 15;
    table.of_value[2 * i + 1] = stored[i] >> 4;
  }
  __syncthreads();
  order_values(table);
  write_entries(table);
  __syncthreads();
}

// The start of the lane's stream, from the block's start; the block's end if the stored start lies outside the block.
__device__ __forceinline__ uint32_t stream_start(const BlockToDecode& block, uint64_t groups, uint64_t streams, uint64_t group,
                                                 uint32_t lane) {
  const uint64_t stream = group * kHuffmanGroupStreams + lane;
  const uint64_t length_at = groups * 4 + stream;
  const uint32_t length = stream < streams && length_at < block.coded_bytes ? block.coded[length_at] : 0;
  uint32_t before = length;
  for (uint32_t apart = 1; apart < kWarp; apart *= 2) {
    const uint32_t lower = __shfl_up_sync(kFullWarp, before, apart);
    if (lane >= apart) before += lower;
  }
  const uint64_t first = group * 4 + 4 <= block.coded_bytes ? word_at(block.coded + group * 4) : block.coded_bytes;
  const uint64_t start = first + before - length;
  return static_cast<uint32_t>(start < block.coded_bytes ? start : block.coded_bytes);
}

// Writes all lanes' values of a round, sixteen at a time; neighbouring threads write neighbouring values.
__device__ __forceinline__ void write_round(const BlockToDecode& block, const WantedValues& wanted, uint64_t first_value,
                                            const uint32_t* words, uint32_t lane) {
  constexpr uint32_t kParts = kRoundValues / 16;
  for (uint32_t part = lane; part < kWarp * kParts; part += kWarp) {
    const uint32_t* const own = words + part / kParts * kPaddedWords + part % kParts * 4;
    const uint64_t first = first_value + part / kParts * kHuffmanStreamValues + part % kParts * 16;
    if (first >= wanted.end || first + 16 <= wanted.begin) continue;
    write_sixteen(block, wanted, first, {own[0], own[1], own[2], own[3]});
  }
}

__device__ __forceinline__ void decode_group(const BlockToDecode& block, const WantedValues& wanted, uint64_t streams,
                                             uint64_t groups, uint64_t group, const uint16_t* entries, uint32_t* words,
                                             uint32_t lane) {
  const uint64_t first_value = group * kHuffmanGroupStreams * kHuffmanStreamValues;
  BitReader reader(block.coded, static_cast<uint32_t>(block.coded_bytes), stream_start(block, groups, streams, group, lane));
  for (uint32_t done = 0; done < kHuffmanStreamValues; done += kRoundValues) {
    for (uint32_t word = 0; word < kRoundWords; ++word) {
      uint32_t four = 0;
      for (uint32_t i = 0; i < 4; ++i) {
        if (i % 2 == 0) reader.refill();
        const uint32_t entry = entries[reader.peek()];
        four |= (entry & 0xff) << 8 * i;
        reader.skip(entry >> 8);
      }
      words[lane * kPaddedWords + word] = four;
    }
    __syncwarp();
    write_round(block, wanted, first_value + done, words, lane);
    __syncwarp();
  }
}

// Decodes every gridDim.x-th of the turns (huffman_work.h) that hold a wanted value.
__global__ void __launch_bounds__(kThreads, kHuffmanBlocksOfMultiprocessor) decode_huffman(const __grid_constant__ BlockList list) {
  __shared__ CodeTable table;
  __shared__ uint32_t decoded[kHuffmanWarps][kWarp * kPaddedWords];
  const BlockToDecode& block = list.blocks[blockIdx.y];
  const WantedValues wanted = wanted_of(block);
  const uint64_t first_turn = wanted.begin / kHuffmanTurnValues + blockIdx.x;
  if (first_turn * kHuffmanTurnValues >= wanted.end) return;
  build_table(table, list.table);
  constexpr uint64_t kGroupValues = uint64_t{kHuffmanGroupStreams} * kHuffmanStreamValues;
  const uint64_t streams = (block.block_plain_bytes + kHuffmanStreamValues - 1) / kHuffmanStreamValues;
  const uint64_t groups = (streams + kHuffmanGroupStreams - 1) / kHuffmanGroupStreams;
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  for (uint64_t turn = first_turn; turn * kHuffmanTurnValues < wanted.end; turn += gridDim.x) {
    const uint64_t group = turn * kHuffmanWarps + warp;
    if (group * kGroupValues >= wanted.end || (group + 1) * kGroupValues <= wanted.begin) continue;
    decode_group(block, wanted, streams, groups, group, table.entries, decoded[warp], lane);
  }
}

}  // namespace

cudaError_t launch_decode_huffman(const BlockToDecode* host_blocks, int count, const uint8_t* table, int multiprocessors,
                                  cudaStream_t stream) {
  uint64_t turns = 0;
  for (int i = 0; i < count; ++i) turns = std::max(turns, huffman_turns(host_blocks[i]));
  if (turns == 0) return cudaSuccess;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(huffman_thread_blocks(turns, count, multiprocessors), static_cast<unsigned>(count));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, decode_huffman, listed(host_blocks, count, table));
}

}  // namespace odmoe::cuda
