// The two loops that measure_machine times.
#pragma once
#include "kernels_dot.h"

namespace odmoe::cpu {
namespace {

uint64_t read_bytes(const uint8_t* data, uint64_t bytes) {
  constexpr int kStreams = 8;
  const uint64_t* words = reinterpret_cast<const uint64_t*>(data);
  uint64_t sums[kStreams * 8] = {};
  for (uint64_t i = 0; i < bytes / 8; i += kStreams * 8) {
    for (int s = 0; s < kStreams; ++s) __builtin_prefetch(data + i * 8 + s * 64 + kStreamAhead);
    for (int s = 0; s < kStreams * 8; ++s) sums[s] ^= words[i + s];
  }
  uint64_t all = 0;
  for (int s = 0; s < kStreams * 8; ++s) all ^= sums[s];
  return all;
}

double multiply_add(int64_t iterations, float* sink) {
  // Enough independent chains to hide the latency of two units, few enough for 16 registers.
  constexpr int kChains = 12;
  const Vector x = Simd::broadcast(sink[0]);
  const Vector y = Simd::broadcast(sink[1]);
  Vector sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = Simd::broadcast(static_cast<float>(c));
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sums[c] = Simd::fma(sums[c], x, y);
  }
  Vector total = sums[0];
  for (int c = 1; c < kChains; ++c) total = Simd::add(total, sums[c]);
  float lanes[kWidth];
  Simd::store(lanes, total);
  for (int lane = 0; lane < kWidth; ++lane) sink[2] = sink[2] + lanes[lane];
  return 2.0 * kWidth * kChains * static_cast<double>(iterations);
}

}  // namespace
}  // namespace odmoe::cpu
