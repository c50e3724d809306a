// Operators whose rows follow one another: the causal convolution, the gated delta rule and the state space rule.
#pragma once
#include "kernels_elementwise.h"

namespace odmoe::cpu {
namespace {

// Row `row` of the convolution's input; rows before the first are in the tail.
ODMOE_INLINE const float* convolved_row(const ConvolutionWork& work, int64_t row) {
  return row < 0 ? work.tail + (work.taps - 1 + row) * work.channels : work.in + row * work.in_stride;
}

// kTaps: the number of taps, or 0 for any number.
template <int kTaps>
void convolve_row(const ConvolutionWork& work, int64_t row, int64_t begin, int64_t end) {
  const int taps = kTaps != 0 ? kTaps : work.taps;
  const float* rows[kTaps != 0 ? kTaps : kMostTaps];
  for (int t = 0; t < taps; ++t) rows[t] = convolved_row(work, row - taps + 1 + t) + begin;
  const float* const weight = work.weight + begin;
  float* const out = work.out + row * work.out_stride + begin;
  const int64_t channels = work.channels;
  const bool with_silu = work.silu;
  const float* const bias = work.bias == nullptr ? nullptr : work.bias + begin;
  const float* const ahead = row + 1 < work.rows ? rows[taps - 1] + work.in_stride : rows[taps - 1];
  for_each_vector(end - begin, [=](int64_t i, auto load, auto store) {
    Vector sum = Simd::zero();
    __builtin_prefetch(ahead + i);
#pragma GCC unroll 4
    for (int t = 0; t < taps; ++t) sum = Simd::fma(load(weight + t * channels + i), load(rows[t] + i), sum);
    if (bias != nullptr) sum = Simd::add(sum, load(bias + i));
    store(out + i, with_silu ? silu(sum) : sum);
  });
}

// Channels [begin, end) of all rows, and of the tail.
void convolve(const ConvolutionWork& work, int64_t begin, int64_t end) {
  for (int64_t row = 0; row < work.rows; ++row) {
    switch (work.taps) {
      case 3: convolve_row<3>(work, row, begin, end); break;
      case 4: convolve_row<4>(work, row, begin, end); break;
      default: convolve_row<0>(work, row, begin, end); break;
    }
  }
  // Row t of the new tail is read before it is written; the rows behind it are read and written later.
  for (int t = 0; t < work.taps - 1; ++t) {
    const float* const from = convolved_row(work, work.rows - work.taps + 1 + t);
    float* const to = work.tail + t * work.channels;
    for (int64_t c = begin; c < end; ++c) to[c] = from[c];
  }
}

constexpr int kGateRows = 64;
// Key dimensions of a state that fit in the scratch, four vectors each.
constexpr int64_t kDeltaScratchRows = static_cast<int64_t>(kThreadScratch) / (4 * kWidth);

// Values [begin, end) of a vector of a, of head `head`, become factors of the state.
void channel_decay(const DecayWork& work, float* values, int64_t head, int64_t begin, int64_t end) {
  const Vector stored = Simd::broadcast(work.decay_log[head]);
  const Vector rate = work.decay_is_rate ? stored : exponential(stored);
  const Vector floor = Simd::broadcast(work.floor);
  const bool has_floor = work.floor < 0;
  float* const first = values + begin;
  const float* const bias = work.decay_bias + head * work.decays.size + begin;
  for_each_vector(end - begin, [=](int64_t i, auto load, auto store) {
    const Vector x = Simd::add(load(first + i), load(bias + i));
    const Vector exponent =
        has_floor ? Simd::multiply(floor, sigmoid(Simd::multiply(rate, x))) : negative(Simd::multiply(rate, softplus(x)));
    store(first + i, exponential(exponent));
  });
}

// The factors of rows [first, first + count) of one value head. `decay` has none where the work has those of each channel.
struct DeltaGates {
  float beta[kGateRows];
  float decay[kGateRows];

  DeltaGates(const DeltaWork& work, int64_t head, int64_t first, int64_t count) {
    read(beta, work.beta, work, head, first, count);
    for (int64_t r = 0; r < count; r += kWidth) Simd::store(beta + r, sigmoid(Simd::load(beta + r)));
    if (work.decay_by_channel) return;
    const Vector stored = Simd::broadcast(work.decay_log[head]);
    const Vector rate = work.decay_is_rate ? stored : exponential(stored);
    const Vector bias = Simd::broadcast(work.decay_bias[head]);
    read(decay, work.decay, work, head, first, count);
    for (int64_t r = 0; r < count; r += kWidth) {
      const Vector step = softplus(Simd::add(Simd::load(decay + r), bias));
      Simd::store(decay + r, exponential(negative(Simd::multiply(rate, step))));
    }
  }

 private:
  // Vectors that end behind the last row are filled up with the first.
  static void read(float* to, const float* from, const DeltaWork& work, int64_t head, int64_t first, int64_t count) {
    for (int64_t r = 0; r < count; r += kWidth) {
      for (int64_t lane = r; lane < r + kWidth; ++lane) {
        to[lane] = from[(first + (lane < count ? lane : 0)) * work.gate_stride + head];
      }
    }
  }
};

// One head's state in some value dimensions; row(i) is the start of row i (key dimension i).
struct DeltaState {
  float* first;
  int64_t step;
  ODMOE_INLINE float* row(int64_t i) const { return first + i * step; }
};

// kWide vectors of value dimensions, or the first `rest` lanes of one. kByChannel: a decay is an array with a factor for each row of the
// state, else one factor for all.
template <int kWide, bool kPartial, bool kByChannel>
struct DeltaColumns {
  int key_dim;
  int64_t rest;

  Vector load(const float* p) const { return kPartial ? Simd::load_first(p, rest) : Simd::load(p); }
  void store(float* p, Vector v) const { kPartial ? Simd::store_first(p, v, rest) : Simd::store(p, v); }

  // to = from * decay; remembered = to^T k.
  ODMOE_INLINE void decay(const DeltaState& from, const DeltaState& to, const float* key, const float* decay,
                          Vector (&remembered)[kWide]) const {
    const Vector of_all = Simd::broadcast(decay[0]);
    for (int v = 0; v < kWide; ++v) remembered[v] = Simd::zero();
    for (int64_t i = 0; i < key_dim; ++i) {
      const Vector k = Simd::broadcast(key[i]);
      const Vector factor = kByChannel ? Simd::broadcast(decay[i]) : of_all;
      const float* const state = from.row(i);
      float* const decayed = to.row(i);
#pragma GCC unroll 4
      for (int v = 0; v < kWide; ++v) {
        __builtin_prefetch(state + kDeltaAhead * from.step + v * kWidth, 1, 3);
        const Vector s = Simd::multiply(load(state + v * kWidth), factor);
        store(decayed + v * kWidth, s);
        remembered[v] = Simd::fma(s, k, remembered[v]);
      }
    }
  }

  // to = from + k d^T; out = to^T q; if kMore, then also the step of decay() for the next row.
  template <bool kMore>
  ODMOE_INLINE void update(const DeltaState& from, const DeltaState& to, const float* key, const float* query,
                           const Vector (&change)[kWide], float* out, const float* next_key, const float* next_decay,
                           Vector (&remembered)[kWide]) const {
    const Vector of_all = kMore ? Simd::broadcast(next_decay[0]) : Simd::zero();
    Vector sums[kWide];
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) sums[v] = remembered[v] = Simd::zero();
    for (int64_t i = 0; i < key_dim; ++i) {
      const Vector k = Simd::broadcast(key[i]);
      const Vector q = Simd::broadcast(query[i]);
      const Vector next = kMore ? Simd::broadcast(next_key[i]) : Simd::zero();
      const Vector factor = kMore && kByChannel ? Simd::broadcast(next_decay[i]) : of_all;
      const float* const state = from.row(i);
      float* const updated = to.row(i);
#pragma GCC unroll 4
      for (int v = 0; v < kWide; ++v) {
        Vector s = Simd::fma(k, change[v], load(state + v * kWidth));
        sums[v] = Simd::fma(s, q, sums[v]);
        if constexpr (kMore) {
          s = Simd::multiply(s, factor);
          remembered[v] = Simd::fma(s, next, remembered[v]);
        }
        store(updated + v * kWidth, s);
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) store(out + v * kWidth, sums[v]);
  }

 private:
  static constexpr int64_t kDeltaAhead = 8;
};

// Rows [first, first + count), count <= kGateRows, of one head and the value dimensions from `dim` on. Between rows the state is in
// scratch: its distant rows would share few sets of the first-level cache.
template <int kWide, bool kPartial, bool kByChannel>
void delta_block(const DeltaWork& work, int64_t head, const DeltaGates& gates, int64_t first, int64_t count, int64_t dim,
                 int64_t rest, float* scratch) {
  const int64_t key_head = work.tiled_value_heads ? head % work.key_heads : head / (work.value_heads / work.key_heads);
  const int64_t key_offset = key_head * work.key_dim;
  const int64_t value_offset = head * work.value_dim + dim;
  const DeltaColumns<kWide, kPartial, kByChannel> columns{work.key_dim, rest};
  const DeltaState kept{work.state + head * work.key_dim * work.value_dim + dim, work.value_dim};
  const DeltaState between = work.key_dim <= kDeltaScratchRows ? DeltaState{scratch, kWide * kWidth} : kept;
  const auto decay = [&](int64_t r) {
    return kByChannel ? work.decay + (first + r) * work.gate_stride + head * work.key_dim : &gates.decay[r];
  };
  Vector remembered[kWide];
  columns.decay(kept, between, work.keys + first * work.stride + key_offset, decay(0), remembered);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t at = (first + r) * work.stride;
    const float* const key = work.keys + at + key_offset;
    const float* const query = work.queries + at + key_offset;
    const float* const value = work.values + at + value_offset;
    float* const out = work.out + (first + r) * work.out_stride + value_offset;
    const Vector beta = Simd::broadcast(gates.beta[r]);
    Vector change[kWide];
    for (int v = 0; v < kWide; ++v) {
      change[v] = Simd::multiply(Simd::subtract(columns.load(value + v * kWidth), remembered[v]), beta);
    }
    if (r + 1 < count) {
      columns.template update<true>(between, between, key, query, change, out, key + work.stride, decay(r + 1), remembered);
    } else {
      columns.template update<false>(between, kept, key, query, change, out, nullptr, nullptr, remembered);
    }
  }
}

template <bool kByChannel>
void delta_rows(const DeltaWork& work, int64_t head, int64_t begin, int64_t end, float* scratch) {
  for (int64_t first = 0; first < work.rows; first += kGateRows) {
    const int64_t count = work.rows - first < kGateRows ? work.rows - first : kGateRows;
    const DeltaGates gates(work, head, first, count);
    const auto block = [&]<int kWide, bool kPartial>(int64_t dim, int64_t rest) {
      delta_block<kWide, kPartial, kByChannel>(work, head, gates, first, count, dim, rest, scratch);
    };
    int64_t dim = begin;
    for (; dim + 4 * kWidth <= end; dim += 4 * kWidth) block.template operator()<4, false>(dim, 0);
    for (; dim + kWidth <= end; dim += kWidth) block.template operator()<1, false>(dim, 0);
    if (dim < end) block.template operator()<1, true>(dim, end - dim);
  }
}

// All rows of one value head's value dimensions [begin, end). scratch: kThreadScratch floats.
void delta_rule(const DeltaWork& work, int64_t head, int64_t begin, int64_t end, float* scratch) {
  if (work.decay_by_channel) return delta_rows<true>(work, head, begin, end, scratch);
  delta_rows<false>(work, head, begin, end, scratch);
}

// The factors of rows [first, first + count) of one head.
struct SpaceGates {
  float step[kGateRows];
  float decay[kGateRows];

  SpaceGates(const StateSpaceWork& work, int64_t head, int64_t first, int64_t count) {
    const Vector rate = exponential(Simd::broadcast(work.decay_log[head]));
    const Vector bias = Simd::broadcast(work.step_bias[head]);
    for (int64_t r = 0; r < count; r += kWidth) {
      for (int64_t lane = r; lane < r + kWidth; ++lane) {
        step[lane] = work.steps[(first + (lane < count ? lane : 0)) * work.step_stride + head];
      }
      const Vector steps = softplus(Simd::add(Simd::load(step + r), bias));
      Simd::store(step + r, steps);
      Simd::store(decay + r, exponential(negative(Simd::multiply(rate, steps))));
    }
  }
};

// One row of a head in kWide vectors of dimensions, or the first `rest` lanes of one. to = from * decay + B d^T; out = to^T C + D x.
template <int kWide, bool kPartial>
ODMOE_INLINE void space_row(const StateSpaceWork& work, const DeltaState& from, const DeltaState& to, const float* input,
                            const float* read, const float* value, float* out, float step, float decay, float skip, int64_t rest) {
  const DeltaColumns<kWide, kPartial, false> columns{work.state_size, rest};
  const Vector factor = Simd::broadcast(decay);
  Vector changes[kWide];
  Vector sums[kWide];
  for (int v = 0; v < kWide; ++v) {
    changes[v] = Simd::multiply(columns.load(value + v * kWidth), Simd::broadcast(step));
    sums[v] = Simd::zero();
  }
  for (int64_t i = 0; i < work.state_size; ++i) {
    const Vector b = Simd::broadcast(input[i]);
    const Vector c = Simd::broadcast(read[i]);
    const float* const before = from.row(i);
    float* const after = to.row(i);
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) {
      const Vector s = Simd::fma(b, changes[v], Simd::multiply(columns.load(before + v * kWidth), factor));
      sums[v] = Simd::fma(s, c, sums[v]);
      columns.store(after + v * kWidth, s);
    }
  }
  for (int v = 0; v < kWide; ++v) {
    columns.store(out + v * kWidth, Simd::fma(Simd::broadcast(skip), columns.load(value + v * kWidth), sums[v]));
  }
}

// Rows [first, first + count), count <= kGateRows, of one head and the dimensions from `dim` on; the state is in scratch between rows,
// as in delta_block.
template <int kWide, bool kPartial>
void space_block(const StateSpaceWork& work, int64_t head, const SpaceGates& gates, int64_t first, int64_t count, int64_t dim,
                 int64_t rest, float* scratch) {
  const int64_t group_offset = head / (work.heads / work.groups) * work.state_size;
  const int64_t offset = head * work.head_dim + dim;
  const DeltaState kept{work.state + head * work.state_size * work.head_dim + dim, work.head_dim};
  const DeltaState between = work.state_size <= kDeltaScratchRows ? DeltaState{scratch, kWide * kWidth} : kept;
  for (int64_t r = 0; r < count; ++r) {
    const int64_t at = (first + r) * work.stride;
    space_row<kWide, kPartial>(work, r == 0 ? kept : between, r + 1 == count ? kept : between, work.inputs + at + group_offset,
                               work.reads + at + group_offset, work.values + at + offset,
                               work.out + (first + r) * work.out_stride + offset, gates.step[r], gates.decay[r], work.skip[head],
                               rest);
  }
}

// All rows of one head's dimensions [begin, end). scratch: kThreadScratch floats.
void state_space(const StateSpaceWork& work, int64_t head, int64_t begin, int64_t end, float* scratch) {
  for (int64_t first = 0; first < work.rows; first += kGateRows) {
    const int64_t count = work.rows - first < kGateRows ? work.rows - first : kGateRows;
    const SpaceGates gates(work, head, first, count);
    int64_t dim = begin;
    for (; dim + 4 * kWidth <= end; dim += 4 * kWidth) space_block<4, false>(work, head, gates, first, count, dim, 0, scratch);
    for (; dim + kWidth <= end; dim += kWidth) space_block<1, false>(work, head, gates, first, count, dim, 0, scratch);
    if (dim < end) space_block<1, true>(work, head, gates, first, count, dim, end - dim, scratch);
  }
}

}  // namespace
}  // namespace odmoe::cpu
