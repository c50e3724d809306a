// Functions without vectors. They are compiled into each instruction set's file, so that each set gets its best version. Everything
// is in an unnamed namespace and inlines nothing of the standard library; otherwise the linker might use one set's copy for all.
#pragma once
#include <cstring>

#include "plane_kernels.h"

namespace odmoe {
namespace {

// Lookups that one refill of 64 bits allows: at least 57 bits are always available.
constexpr int kLookupsPerRefill = 5;
static_assert(kLookupsPerRefill * kLongestCode <= 57);
// Each lookup gives at least one value of a stream; four streams run until the slowest of them is done.
constexpr uint64_t kMostRefills = (kStreamValues + kLookupsPerRefill - 1) / kLookupsPerRefill;
constexpr uint64_t kMostValuesPerLookup = 6;
constexpr uint64_t kStreamScratch = kMostRefills * kLookupsPerRefill * kMostValuesPerLookup + 8;
static_assert(kMostRefills * kLookupsPerRefill * kLongestCode / 8 + 8 < kStreamReadBytes);

struct StreamCursor {
  const uint8_t* stream;
  uint8_t* out;
  uint64_t values;
  uint64_t taken_bits;
};

inline __attribute__((always_inline)) uint64_t refill(const StreamCursor& cursor) {
  uint64_t bits;
  std::memcpy(&bits, cursor.stream + cursor.taken_bits / 8, 8);
  return bits >> cursor.taken_bits % 8;
}

// `since_refill`: the sums of the entries' upper halves, values in byte 0, bits in byte 1; neither leaves its byte.
inline __attribute__((always_inline)) void look_up(const uint64_t* lookup, uint64_t& bits, uint8_t* out, uint64_t& since_refill) {
  const uint64_t entry = lookup[bits & (kLookupEntries - 1)];
  std::memcpy(out + (since_refill & 0xFF), &entry, 8);
  since_refill += entry >> 48;
  bits >>= entry >> 56;
}
static_assert(kLookupsPerRefill * kMostValuesPerLookup <= 0xFF);

inline __attribute__((always_inline)) void advance(StreamCursor& cursor, uint64_t since_refill) {
  cursor.values += since_refill & 0xFF;
  cursor.taken_bits += since_refill >> 8;
}

void decode_streams_portable(const uint64_t* lookup, const uint8_t* const* streams, uint8_t* out) {
  uint8_t scratch[kStreamsAtOnce][kStreamScratch];
  StreamCursor a{streams[0], scratch[0], 0, 0};
  StreamCursor b{streams[1], scratch[1], 0, 0};
  StreamCursor c{streams[2], scratch[2], 0, 0};
  StreamCursor d{streams[3], scratch[3], 0, 0};
  do {
    uint64_t bits[kStreamsAtOnce] = {refill(a), refill(b), refill(c), refill(d)};
    uint64_t since[kStreamsAtOnce] = {};
    for (int i = 0; i < kLookupsPerRefill; i++) {
      look_up(lookup, bits[0], a.out + a.values, since[0]);
      look_up(lookup, bits[1], b.out + b.values, since[1]);
      look_up(lookup, bits[2], c.out + c.values, since[2]);
      look_up(lookup, bits[3], d.out + d.values, since[3]);
    }
    advance(a, since[0]);
    advance(b, since[1]);
    advance(c, since[2]);
    advance(d, since[3]);
  } while (a.values < kStreamValues || b.values < kStreamValues || c.values < kStreamValues || d.values < kStreamValues);
  for (int i = 0; i < kStreamsAtOnce; i++) {
    std::memcpy(out + static_cast<uint64_t>(i) * kStreamValues, scratch[i], kStreamValues);
  }
}

[[maybe_unused]] void expand_codes_portable(const uint8_t* codes, const uint8_t* table, uint8_t* out, uint64_t groups) {
  for (uint64_t group = 0; group < groups; group++) {
    for (uint64_t j = 0; j < kGroupCodeBytes; j++) {
      out[j] = table[codes[j] & 15];
      out[j + kGroupCodeBytes] = table[codes[j] >> 4];
    }
    codes += kGroupCodeBytes;
    out += kGroupValues;
  }
}

void merge_bf16_portable(const uint8_t* exponents, const uint8_t* sign_mantissas, uint8_t* out, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    out[2 * i] = static_cast<uint8_t>(exponents[i] << 7 | (sign_mantissas[i] & 0x7F));
    out[2 * i + 1] = static_cast<uint8_t>((sign_mantissas[i] & 0x80) | exponents[i] >> 1);
  }
}

// A group's exponents are copied before its values are written, for they may lie in the same place.
inline void join_e4m3_portable(const uint8_t* exponents, const uint8_t* sign_mantissas, uint8_t* out, uint64_t groups) {
  for (uint64_t group = 0; group < groups; group++) {
    uint8_t values[kE4m3GroupValues];
    for (uint64_t j = 0; j < kE4m3GroupBytes; j++) {
      const uint32_t e = exponents[j];
      const uint32_t sm = sign_mantissas[j];
      values[j] = static_cast<uint8_t>((e & 15) << 3 | (sm & 8) << 4 | (sm & 7));
      values[j + kE4m3GroupBytes] = static_cast<uint8_t>((e & 0xF0) >> 1 | (sm & 0x80) | (sm >> 4 & 7));
    }
    std::memcpy(out, values, kE4m3GroupValues);
    exponents += kE4m3GroupBytes;
    sign_mantissas += kE4m3GroupBytes;
    out += kE4m3GroupValues;
  }
}

// Number of values to merge one by one until `out` is at a multiple of `alignment`; all values where it never is.
[[maybe_unused]] uint64_t values_to_alignment(const uint8_t* out, uint64_t alignment, uint64_t count) {
  const uint64_t misaligned = reinterpret_cast<uintptr_t>(out) % alignment;
  if (misaligned % 2 != 0) return count;
  const uint64_t values = misaligned == 0 ? 0 : (alignment - misaligned) / 2;
  return values < count ? values : count;
}

}  // namespace
}  // namespace odmoe
