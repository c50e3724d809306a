// Entries of pools of positions: a softmax over a pool's positions, for each channel by itself.
#pragma once
#include "kernels_elementwise.h"

namespace odmoe::cpu {
namespace {

// A position's part of an entry: its values, its gates and what is added to these.
struct PoolTerm {
  const float* values;
  const float* gates;
  const float* biases;
};

ODMOE_INLINE PoolTerm pool_term(const PoolWork& work, const AttentionRow& row, int64_t position) {
  const int64_t parts = work.overlaps ? 2 : 1;
  const int64_t part = position > row.position - work.positions ? parts - 1 : 0;
  const int64_t plane = int64_t{kAttentionChunk} * work.size;
  const float* const first = row.cache.key_blocks[position / kAttentionChunk] + position % kAttentionChunk * work.size;
  return {first + part * plane, first + (parts + part) * plane,
          work.gate_biases + (position % work.positions * parts + part) * work.size};
}

// Channels [begin, end) of one row's entry.
void pool(const PoolWork& work, int64_t row, int64_t begin, int64_t end) {
  const AttentionRow& of = work.host_rows[row];
  const int64_t last = of.position;
  const int64_t first = last + 1 - pooled_positions(work, last);
  float* const out = work.out + row * work.size + begin;
  for_each_vector(end - begin, [=, &work, &of](int64_t i, auto load, auto store) {
    const auto gate = [&](const PoolTerm& term) { return Simd::add(load(term.gates + begin + i), load(term.biases + begin + i)); };
    Vector most = Simd::broadcast(-__builtin_inff());
    for (int64_t p = first; p <= last; ++p) most = Simd::greater(gate(pool_term(work, of, p)), most);
    Vector weights = Simd::zero();
    Vector sum = Simd::zero();
    for (int64_t p = first; p <= last; ++p) {
      const PoolTerm term = pool_term(work, of, p);
      const Vector weight = exponential(Simd::subtract(gate(term), most));
      weights = Simd::add(weights, weight);
      sum = Simd::fma(weight, load(term.values + begin + i), sum);
    }
    store(out + i, Simd::divide(sum, weights));
  });
}

}  // namespace
}  // namespace odmoe::cpu
