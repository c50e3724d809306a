// fixed4: looks up codes sixteen at a time, then puts the few escapes in their places. A thread block issues all its loads before
// it uses any of the data: there are few thread blocks, and one wait for memory takes longer than all the rest.
#include "block_list.h"

namespace odmoe::cuda {
namespace {

constexpr uint32_t kThreads = 256;
// Values that a thread block decodes: a part of a window, so that a small block of a chunk still keeps many thread blocks busy.
constexpr uint32_t kPartValues = 16384;
constexpr uint32_t kHalfGroupValues = kFixed4GroupValues / 2;
// Number of half groups that each thread looks up.
constexpr uint32_t kTurns = kPartValues / (kThreads * kHalfGroupValues);
static_assert(kFixed4WindowValues % kPartValues == 0, "a part lies in one window");
static_assert(kTurns * kThreads * kHalfGroupValues == kPartValues, "a part is whole turns");

// The alignment of a block: a multiple of 16 bytes, or any address.
enum class Placed : uint8_t { aligned, anywhere };

template <Placed kPlaced>
__device__ __forceinline__ uint4 sixteen_bytes(const uint8_t* bytes) {
  if constexpr (kPlaced == Placed::aligned) return __ldcs(reinterpret_cast<const uint4*>(bytes));
  return {word_at(bytes), word_at(bytes + 4), word_at(bytes + 8), word_at(bytes + 12)};
}

template <Placed kPlaced>
__device__ __forceinline__ uint32_t four_bytes(const uint8_t* bytes) {
  if constexpr (kPlaced == Placed::aligned) return *reinterpret_cast<const uint32_t*>(bytes);
  return word_at(bytes);
}

__device__ __forceinline__ uint4 table_of(const uint8_t* table) {
  const bool aligned = (reinterpret_cast<uintptr_t>(table) & 15) == 0;
  return aligned ? *reinterpret_cast<const uint4*>(table) : sixteen_bytes<Placed::anywhere>(table);
}

// The escapes of a part's window, as numbers among the block's escapes. Nothing is computed here from loaded values, so that
// nothing waits.
struct Escapes {
  const uint8_t* positions;
  const uint8_t* symbols;
  uint64_t all;  // escapes of the whole block
  uint32_t first;
  uint32_t end;
};

template <Placed kPlaced>
__device__ __forceinline__ Escapes escapes_of(const BlockToDecode& block, uint64_t window) {
  const uint64_t plain = block.block_plain_bytes;
  const uint64_t code_bytes = (plain + kFixed4GroupValues - 1) / kFixed4GroupValues * kFixed4GroupBytes;
  const uint64_t fixed_bytes = code_bytes + (plain + kFixed4WindowValues - 1) / kFixed4WindowValues * 4;
  Escapes escapes = {};
  if (block.coded_bytes < fixed_bytes) return escapes;
  const uint8_t* const ends = block.coded + code_bytes;
  if (window > 0) escapes.first = four_bytes<kPlaced>(ends + (window - 1) * 4);
  escapes.end = four_bytes<kPlaced>(ends + window * 4);
  escapes.all = (block.coded_bytes - fixed_bytes) / 3;
  escapes.positions = block.coded + fixed_bytes;
  escapes.symbols = escapes.positions + 2 * escapes.all;
  return escapes;
}

struct Escape {
  uint32_t position;  // in the window; a position past the window: there is no escape
  uint32_t symbol;
};

// The escape `number` places behind the window's first one.
__device__ __forceinline__ Escape escape_at(const Escapes& escapes, uint32_t number) {
  const uint64_t i = uint64_t{escapes.first} + number;
  if (i >= escapes.end || i >= escapes.all) return {kFixed4WindowValues, 0};
  const uint32_t low = escapes.positions[2 * i];
  const uint32_t high = escapes.positions[2 * i + 1];
  return {low | high << 8, escapes.symbols[i]};
}

// A part of a block, from value `begin` on. Positions in the part count from there.
struct Part {
  uint64_t begin;
  uint32_t wanted_begin;
  uint32_t wanted_end;
  uint32_t coded_bytes;  // bytes of the block's codes
};

__device__ __forceinline__ Part part_of(const BlockToDecode& block, const WantedValues& wanted, uint64_t begin) {
  const uint64_t wanted_end = wanted.end - begin;
  const uint64_t coded_begin = begin / kFixed4GroupValues * kFixed4GroupBytes;
  const uint64_t coded = block.coded_bytes > coded_begin ? block.coded_bytes - coded_begin : 0;
  constexpr uint32_t kPartBytes = kPartValues / kFixed4GroupValues * kFixed4GroupBytes;
  return {begin, wanted.begin > begin ? static_cast<uint32_t>(wanted.begin - begin) : 0,
          wanted_end < kPartValues ? static_cast<uint32_t>(wanted_end) : kPartValues,
          coded < kPartBytes ? static_cast<uint32_t>(coded) : kPartBytes};
}

__device__ __forceinline__ uint32_t first_of_turn(uint32_t turn) { return (turn * kThreads + threadIdx.x) * kHalfGroupValues; }

// Codes past the block's end, which a damaged block may have, are not read.
__device__ __forceinline__ bool has_turn(const Part& part, uint32_t turn) {
  const uint32_t first = first_of_turn(turn);
  return first < part.wanted_end && first + kHalfGroupValues > part.wanted_begin &&
         first / kFixed4GroupValues * kFixed4GroupBytes + kFixed4GroupBytes <= part.coded_bytes;
}

// kAtOnce turns from `turn` on. Two neighbouring turns share a group: the first has the low halves of its bytes, the second the
// high halves.
template <Placed kPlaced, uint32_t kAtOnce>
struct Turns {
  uint4 codes[kAtOnce];

  __device__ __forceinline__ void load(const BlockToDecode& block, const Part& part, uint32_t turn) {
    const uint8_t* const coded = block.coded + part.begin / kFixed4GroupValues * kFixed4GroupBytes;
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      codes[i] = {0, 0, 0, 0};
      if (!has_turn(part, turn + i)) continue;
      codes[i] = sixteen_bytes<kPlaced>(coded + first_of_turn(turn + i) / kFixed4GroupValues * kFixed4GroupBytes);
    }
  }

  __device__ __forceinline__ void write(const BlockToDecode& block, const WantedValues& wanted, const Part& part, uint32_t turn,
                                        const uint4& table) const {
    const uint32_t shift = threadIdx.x % 2 == 0 ? 0 : 4;
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      if (!has_turn(part, turn + i)) continue;
      write_sixteen(block, wanted, part.begin + first_of_turn(turn + i),
                    {fixed4_values(codes[i].x >> shift, table.x, table.y, table.z, table.w),
                     fixed4_values(codes[i].y >> shift, table.x, table.y, table.z, table.w),
                     fixed4_values(codes[i].z >> shift, table.x, table.y, table.z, table.w),
                     fixed4_values(codes[i].w >> shift, table.x, table.y, table.z, table.w)});
    }
  }
};

// kAtOnce: turns whose codes are loaded together.
template <Placed kPlaced, uint32_t kAtOnce>
__device__ __forceinline__ void decode_part(const BlockToDecode& block, const WantedValues& wanted, const Part& part,
                                            const uint8_t* stored_table) {
  const uint64_t window = part.begin / kFixed4WindowValues;
  const Escapes escapes = escapes_of<kPlaced>(block, window);
  Turns<kPlaced, kAtOnce> turns;
  turns.load(block, part, 0);
  const uint4 table = table_of(stored_table);
  uint32_t number = threadIdx.x;
  Escape escape = escape_at(escapes, number);
  turns.write(block, wanted, part, 0, table);
#pragma unroll 1
  for (uint32_t turn = kAtOnce; turn < kTurns; turn += kAtOnce) {
    turns.load(block, part, turn);
    turns.write(block, wanted, part, turn, table);
  }
  __syncthreads();
  const auto part_in_window = static_cast<uint32_t>(part.begin % kFixed4WindowValues);
  while (escape.position < kFixed4WindowValues) {
    const uint32_t place = escape.position - part_in_window;  // for an escape of an earlier part: a number past this part
    if (place >= part.wanted_begin && place < part.wanted_end) {
      block.plain[part.begin + place - wanted.begin] = static_cast<uint8_t>(escape.symbol);
    }
    number += kThreads;
    escape = escape_at(escapes, number);
  }
}

__global__ void __launch_bounds__(kThreads) decode_fixed4(const __grid_constant__ BlockList list) {
  const BlockToDecode& block = list.blocks[blockIdx.y];
  const WantedValues wanted = wanted_of(block);
  const uint64_t begin = uint64_t{blockIdx.x} * kPartValues;
  if (begin >= wanted.end || begin + kPartValues <= wanted.begin) return;
  const Part part = part_of(block, wanted, begin);
  if ((reinterpret_cast<uintptr_t>(block.coded) & 15) == 0) {
    decode_part<Placed::aligned, kTurns>(block, wanted, part, list.table);
  } else {
    decode_part<Placed::anywhere, 1>(block, wanted, part, list.table);
  }
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
