// huffman: a warp takes a group of 32 streams, each lane one of them, and looks eleven bits at a time up.
#include "block_list.h"

namespace odmoe::cuda {
namespace {

constexpr uint32_t kWarps = 4;
constexpr uint32_t kThreads = kWarps * kWarp;
constexpr uint32_t kValues = 256;
constexpr uint32_t kTableBytes = 128;
// Values that each lane decodes before the warp writes them out: whole sectors of device memory.
constexpr uint32_t kRoundValues = 32;
constexpr uint32_t kRoundWords = kRoundValues / 4;
constexpr uint32_t kPaddedWords = kRoundWords + 1;  // lanes write to different banks

struct CodeTable {
  HuffmanLengths lengths;
  uint8_t of_value[kValues];  // code lengths
  uint8_t values[kValues];    // in the code's order
  uint16_t entries[kHuffmanLookupEntries];
};

// By the first warp. Where each value stands among those of its length comes from votes; a length past the longest, as only a damaged
// table has one, counts as no code.
__device__ void order_values(CodeTable& table) {
  uint32_t counted[kHuffmanLongestCode + 1] = {};
  for (uint32_t first = 0; first < kValues; first += kWarp) {
    const uint32_t own = table.of_value[first + threadIdx.x];
#pragma unroll
    for (uint32_t length = 1; length <= kHuffmanLongestCode; ++length) {
      counted[length] += static_cast<uint32_t>(__popc(__ballot_sync(kFullWarp, own == length)));
    }
  }
  uint32_t code = 0;
  uint32_t offset = 0;
#pragma unroll
  for (uint32_t length = 1; length <= kHuffmanLongestCode; ++length) {
    if (threadIdx.x == 0) {
      table.lengths.first[length] = code;
      table.lengths.count[length] = counted[length];
      table.lengths.offset[length] = offset;
    }
    code = (code + counted[length]) << 1;
    const uint32_t next = offset + counted[length];
    counted[length] = offset;
    offset = next;
  }
  const uint32_t below = (1u << threadIdx.x) - 1;
  for (uint32_t first = 0; first < kValues; first += kWarp) {
    const uint32_t own = table.of_value[first + threadIdx.x];
#pragma unroll
    for (uint32_t length = 1; length <= kHuffmanLongestCode; ++length) {
      const uint32_t same = __ballot_sync(kFullWarp, own == length);
      const uint32_t place = counted[length] + static_cast<uint32_t>(__popc(same & below));
      if (own == length) table.values[place & 0xff] = static_cast<uint8_t>(first + threadIdx.x);
      counted[length] += static_cast<uint32_t>(__popc(same));
    }
  }
}

__device__ void build_table(CodeTable& table, const uint8_t* stored) {
  for (uint32_t i = threadIdx.x; i < kTableBytes; i += kThreads) {
    table.of_value[2 * i] = stored[i] & 15;
    table.of_value[2 * i + 1] = stored[i] >> 4;
  }
  __syncthreads();
  if (threadIdx.x < kWarp) order_values(table);
  __syncthreads();
  for (uint32_t bits = threadIdx.x; bits < kHuffmanLookupEntries; bits += kThreads) {
    table.entries[bits] = static_cast<uint16_t>(huffman_entry(bits, table.lengths, table.values));
  }
  __syncthreads();
}

// Where the lane's stream begins, from the block's start; past its end where what the block says of it does not lie inside.
__device__ __forceinline__ uint64_t stream_start(const BlockToDecode& block, uint64_t groups, uint64_t streams, uint64_t group,
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
  return first + before - length;
}

// All lanes' values of a round, sixteen at a time, neighbours next to each other.
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

__global__ void __launch_bounds__(kThreads) decode_huffman(const BlockList list) {
  __shared__ CodeTable table;
  __shared__ uint32_t decoded[kWarps][kWarp * kPaddedWords];
  const BlockToDecode& block = list.blocks[blockIdx.y];
  const uint64_t streams = (block.block_plain_bytes + kHuffmanStreamValues - 1) / kHuffmanStreamValues;
  const uint64_t groups = (streams + kHuffmanGroupStreams - 1) / kHuffmanGroupStreams;
  if (uint64_t{blockIdx.x} * kWarps >= groups) return;
  build_table(table, list.table);
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  const uint64_t group = uint64_t{blockIdx.x} * kWarps + warp;
  constexpr uint64_t kGroupValues = uint64_t{kHuffmanGroupStreams} * kHuffmanStreamValues;
  const uint64_t first_value = group * kGroupValues;
  const WantedValues wanted = wanted_of(block);
  if (first_value >= wanted.end || first_value + kGroupValues <= wanted.begin) return;
  BitReader reader(block.coded, block.coded_bytes, stream_start(block, groups, streams, group, lane));
  uint32_t* const words = decoded[warp];
  for (uint32_t done = 0; done < kHuffmanStreamValues; done += kRoundValues) {
    for (uint32_t word = 0; word < kRoundWords; ++word) {
      uint32_t four = 0;
      for (uint32_t i = 0; i < 4; ++i) {
        if (i % 2 == 0) reader.refill();
        const uint32_t entry = table.entries[reader.peek()];
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

}  // namespace

cudaError_t launch_decode_huffman(const BlockToDecode* host_blocks, int count, const uint8_t* table, cudaStream_t stream) {
  const uint64_t most = most_plain_bytes(host_blocks, count);
  if (most == 0) return cudaSuccess;
  constexpr uint64_t kThreadBlockValues = uint64_t{kWarps} * kHuffmanGroupStreams * kHuffmanStreamValues;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>((most + kThreadBlockValues - 1) / kThreadBlockValues), static_cast<unsigned>(count));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, decode_huffman, listed(host_blocks, count, table));
}

}  // namespace odmoe::cuda
