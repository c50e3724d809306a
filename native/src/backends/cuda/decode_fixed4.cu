// fixed4: codes are looked up sixteen at a time, then the few escapes among them are put in their places.
#include "block_list.h"

namespace odmoe::cuda {
namespace {

constexpr uint32_t kThreads = 256;
// Values that a thread block decodes: a part of a window, so that a small block of a chunk still keeps many thread blocks busy.
constexpr uint32_t kPartValues = 16384;
constexpr uint32_t kHalfGroupValues = kFixed4GroupValues / 2;
static_assert(kFixed4WindowValues % kPartValues == 0, "a part lies in one window");

__device__ __forceinline__ uint4 group_codes(const uint8_t* codes) {
  if ((reinterpret_cast<uintptr_t>(codes) & 15) == 0) return *reinterpret_cast<const uint4*>(codes);
  return {word_at(codes), word_at(codes + 4), word_at(codes + 8), word_at(codes + 12)};
}

// Codes past the block's end, as a damaged one may have, are not looked at.
__device__ __forceinline__ void decode_codes(const BlockToDecode& block, const WantedValues& wanted, uint64_t begin, uint64_t end,
                                             uint4 table) {
  for (uint64_t first = begin + threadIdx.x * kHalfGroupValues; first < end; first += kThreads * kHalfGroupValues) {
    if (first >= wanted.end || first + kHalfGroupValues <= wanted.begin) continue;
    // Two neighbours share a group: the first has the low halves of its bytes, the second the high ones.
    const uint64_t group = first / kFixed4GroupValues;
    if ((group + 1) * kFixed4GroupBytes > block.coded_bytes) continue;
    const uint4 codes = group_codes(block.coded + group * kFixed4GroupBytes);
    const uint32_t shift = first % kFixed4GroupValues == 0 ? 0 : 4;
    write_sixteen(block, wanted, first,
                  {fixed4_values(codes.x >> shift, table.x, table.y, table.z, table.w),
                   fixed4_values(codes.y >> shift, table.x, table.y, table.z, table.w),
                   fixed4_values(codes.z >> shift, table.x, table.y, table.z, table.w),
                   fixed4_values(codes.w >> shift, table.x, table.y, table.z, table.w)});
  }
}

// Of the window's escapes those that stand in [begin, end).
__device__ __forceinline__ void place_escapes(const BlockToDecode& block, const WantedValues& wanted, uint64_t begin, uint64_t end) {
  const uint64_t plain = block.block_plain_bytes;
  const uint64_t code_bytes = (plain + kFixed4GroupValues - 1) / kFixed4GroupValues * kFixed4GroupBytes;
  const uint64_t fixed_bytes = code_bytes + (plain + kFixed4WindowValues - 1) / kFixed4WindowValues * 4;
  if (block.coded_bytes < fixed_bytes) return;
  const uint64_t window = begin / kFixed4WindowValues;
  const uint64_t escapes = (block.coded_bytes - fixed_bytes) / 3;
  const uint8_t* const ends = block.coded + code_bytes;
  const uint64_t first = window == 0 ? 0 : word_at(ends + (window - 1) * 4);
  const uint64_t last = word_at(ends + window * 4);
  const uint8_t* const positions = block.coded + fixed_bytes;
  const uint8_t* const symbols = positions + 2 * escapes;
  for (uint64_t i = first + threadIdx.x; i < last && i < escapes; i += kThreads) {
    const uint64_t at = window * kFixed4WindowValues + (positions[2 * i] | static_cast<uint32_t>(positions[2 * i + 1]) << 8);
    if (at < begin || at >= end || at < wanted.begin || at >= wanted.end) continue;
    block.plain[at - wanted.begin] = symbols[i];
  }
}

__global__ void __launch_bounds__(kThreads) decode_fixed4(const BlockList list) {
  const BlockToDecode& block = list.blocks[blockIdx.y];
  const WantedValues wanted = wanted_of(block);
  const uint64_t begin = uint64_t{blockIdx.x} * kPartValues;
  const uint64_t end = begin + kPartValues < block.block_plain_bytes ? begin + kPartValues : block.block_plain_bytes;
  if (begin >= wanted.end || end <= wanted.begin) return;
  const uint8_t* const table = list.table;
  decode_codes(block, wanted, begin, end, {word_at(table), word_at(table + 4), word_at(table + 8), word_at(table + 12)});
  __syncthreads();
  place_escapes(block, wanted, begin, end);
}

}  // namespace

cudaError_t launch_decode_fixed4(const BlockToDecode* host_blocks, int count, const uint8_t* table, cudaStream_t stream) {
  const uint64_t most = most_plain_bytes(host_blocks, count);
  if (most == 0) return cudaSuccess;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>((most + kPartValues - 1) / kPartValues), static_cast<unsigned>(count));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, decode_fixed4, listed(host_blocks, count, table));
}

}  // namespace odmoe::cuda
