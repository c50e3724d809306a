// Counts how often each byte value occurs.
#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace odmoe {

using Histogram = std::array<uint64_t, 256>;

// Uses four counters for each value, because repetitions of one value would wait for a single counter.
inline Histogram count_bytes(std::span<const uint8_t> bytes) {
  std::array<Histogram, 4> counts{};
  for (size_t i = 0; i < bytes.size(); i++) counts[i % 4][bytes[i]]++;
  Histogram total{};
  for (const Histogram& part : counts) {
    for (size_t value = 0; value < total.size(); value++) total[value] += part[value];
  }
  return total;
}

}  // namespace odmoe
