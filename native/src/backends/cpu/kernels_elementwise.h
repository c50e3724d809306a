// exp, RMS norm, RoPE, SwiGLU, router and sums.
#pragma once
#include "kernels_dot.h"

namespace odmoe::cpu {
namespace {

ODMOE_INLINE Vector exponential(Vector x) {
  x = Simd::lesser(Simd::broadcast(kExpHighest), x);
  x = Simd::greater(Simd::broadcast(kExpLowest), x);
  const Vector rounded = Simd::fma(x, Simd::broadcast(kLog2E), Simd::broadcast(kRoundMagic));
  const Vector n = Simd::subtract(rounded, Simd::broadcast(kRoundMagic));
  Vector r = Simd::fma(n, Simd::broadcast(-kLn2High), x);
  r = Simd::fma(n, Simd::broadcast(-kLn2Low), r);
  Vector q = Simd::broadcast(kExpCoefficients[4]);
  for (int i = 3; i >= 0; --i) q = Simd::fma(q, r, Simd::broadcast(kExpCoefficients[i]));
  const Vector y = Simd::add(Simd::broadcast(1.0f), Simd::fma(Simd::multiply(q, r), r, r));
  return Simd::scale_by_power(y, rounded);
}

// Calls body(offset, load, store) for whole vectors and once for the rest; load and store take a pointer at that offset.
template <class Body>
ODMOE_INLINE void for_each_vector(int64_t count, Body&& body) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const auto load = [](const float* p) { return Simd::load(p); };
    const auto store = [](float* p, Vector v) { Simd::store(p, v); };
    body(i, load, store);
  }
  if (i < count) {
    const int64_t rest = count - i;
    const auto load = [rest](const float* p) { return Simd::load_first(p, rest); };
    const auto store = [rest](float* p, Vector v) { Simd::store_first(p, v, rest); };
    body(i, load, store);
  }
}

// The 32 partial sums of count values, folded: term(sum, index, load) is the sum with one more vector of terms.
template <class Term>
ODMOE_INLINE float fold_terms(int64_t count, Term&& term) {
  Vector sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = Simd::zero();
  for (int64_t i = 0; i < count; i += kLanes) {
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = i + v * kWidth;
      if (at + kWidth <= count) {
        sums[v] = term(sums[v], at, [](const float* p) { return Simd::load(p); });
      } else {
        const int64_t rest = count > at ? count - at : 0;
        // Past the end nothing is read, but the terms are still zeros that are added.
        sums[v] = term(sums[v], rest > 0 ? at : 0, [rest](const float* p) { return Simd::load_first(p, rest); });
      }
    }
  }
  return Simd::fold(sums);
}

void rms_norm(float* out, const float* in, const float* weight, int size, float epsilon) {
  const float squares = fold_terms(size, [in](Vector sum, int64_t i, auto load) {
    const Vector x = load(in + i);
    return Simd::fma(x, x, sum);
  });
  const float root = __builtin_sqrtf(squares / static_cast<float>(size) + epsilon);
  for_each_vector(size, [=](int64_t i, auto load, auto store) {
    store(out + i, Simd::multiply(Simd::divide(load(in + i), Simd::broadcast(root)), load(weight + i)));
  });
}

void rope(float* head, const float* cos, const float* sin, int half) {
  for_each_vector(half, [=](int64_t i, auto load, auto store) {
    const Vector a = load(head + i);
    const Vector b = load(head + half + i);
    const Vector c = load(cos + i);
    const Vector s = load(sin + i);
    store(head + i, Simd::fma(Simd::multiply(b, Simd::broadcast(-1.0f)), s, Simd::multiply(a, c)));
    store(head + half + i, Simd::fma(a, s, Simd::multiply(b, c)));
  });
}

void swiglu(float* out, const float* gate, const float* up, int64_t count) {
  for_each_vector(count, [=](int64_t i, auto load, auto store) {
    const Vector x = load(gate + i);
    const Vector e = exponential(Simd::multiply(x, Simd::broadcast(-1.0f)));
    const Vector silu = Simd::divide(x, Simd::add(Simd::broadcast(1.0f), e));
    store(out + i, Simd::multiply(silu, load(up + i)));
  });
}

void add(float* x, const float* y, int64_t count) {
  for_each_vector(count, [=](int64_t i, auto load, auto store) { store(x + i, Simd::add(load(x + i), load(y + i))); });
}

void combine(float* hidden, const float* outputs, const float* weights, int k, int64_t size, int64_t begin, int64_t end) {
  for_each_vector(end - begin, [=](int64_t i, auto load, auto store) {
    const int64_t at = begin + i;
    Vector sum = Simd::multiply(Simd::broadcast(weights[0]), load(outputs + at));
    for (int rank = 1; rank < k; ++rank) {
      sum = Simd::fma(Simd::broadcast(weights[rank]), load(outputs + rank * size + at), sum);
    }
    store(hidden + at, Simd::add(load(hidden + at), sum));
  });
}

void exponentials(float* out, const float* x, int64_t count, float highest, float divisor) {
  for_each_vector(count, [=](int64_t i, auto load, auto store) {
    const Vector below = Simd::subtract(load(x + i), Simd::broadcast(highest));
    store(out + i, exponential(Simd::divide(below, Simd::broadcast(divisor))));
  });
}

// Turns values into exp(value - greatest) in place; NaN is never the greatest.
ODMOE_INLINE void exponentials_below_greatest(float* values, int64_t count) {
  float greatest = -__builtin_inff();
  for (int64_t i = 0; i < count; ++i) greatest = values[i] > greatest ? values[i] : greatest;
  for_each_vector(count, [=](int64_t i, auto load, auto store) {
    store(values + i, exponential(Simd::subtract(load(values + i), Simd::broadcast(greatest))));
  });
}

float fold_values(const float* values, int64_t count) {
  return fold_terms(count, [values](Vector sum, int64_t i, auto load) { return Simd::add(sum, load(values + i)); });
}

void router(int32_t* experts, float* weights, const float* logits, int expert_count, int k, bool normalize, float* scratch) {
  for (int e = 0; e < expert_count; ++e) scratch[e] = logits[e];
  exponentials_below_greatest(scratch, expert_count);
  const float sum = fold_values(scratch, expert_count);
  for (int e = 0; e < expert_count; ++e) scratch[e] = scratch[e] / sum;
  for (int rank = 0; rank < k; ++rank) {
    // Weights are never negative, so -1 marks one that is taken; NaN is never greater, so every rank still gets an expert.
    int best = -1;
    for (int e = 0; e < expert_count; ++e) {
      if (scratch[e] == -1.0f) continue;
      if (best < 0 || scratch[e] > scratch[best]) best = e;
    }
    experts[rank] = best;
    weights[rank] = scratch[best];
    scratch[best] = -1.0f;
  }
  if (!normalize) return;
  float total = weights[0];
  for (int rank = 1; rank < k; ++rank) total = total + weights[rank];
  for (int rank = 0; rank < k; ++rank) weights[rank] = weights[rank] / total;
}

}  // namespace
}  // namespace odmoe::cpu
