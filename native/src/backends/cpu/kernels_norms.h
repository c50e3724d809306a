// Sums of rows, norms, and rotations of heads.
#pragma once
#include "kernels_elementwise.h"

namespace odmoe::cpu {
namespace {

// Folds the 32 partial sums of `count` values: term(sum, index, load) returns the sum with one more vector of terms.
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
        // Nothing is read past the end, but terms of zero are still added.
        sums[v] = term(sums[v], rest > 0 ? at : 0, [rest](const float* p) { return Simd::load_first(p, rest); });
      }
    }
  }
  return Simd::fold(sums);
}

float fold_values(const float* values, int64_t count) {
  return fold_terms(count, [values](Vector sum, int64_t i, auto load) { return Simd::add(sum, load(values + i)); });
}

ODMOE_INLINE float fold_squares(const float* values, int64_t count) {
  return fold_terms(count, [values](Vector sum, int64_t i, auto load) {
    const Vector x = load(values + i);
    return Simd::fma(x, x, sum);
  });
}

// The start of vector `index`, counted over all rows' vectors.
ODMOE_INLINE float* vector_at(const Vectors& all, int64_t index) {
  return all.first + index / all.vectors * all.row_stride + index % all.vectors * all.vector_stride;
}

void normalize(const NormWork& work, int64_t begin, int64_t end) {
  const int64_t size = work.in.size;
  for (int64_t index = begin; index < end; ++index) {
    const float* const in = vector_at(work.in, index);
    const float* const weight = work.weight == nullptr ? nullptr : work.weight + index % work.in.vectors * work.weight_stride;
    float* const out = vector_at(work.out, index);
    const float root = __builtin_sqrtf(fold_squares(in, size) / work.divisor + work.epsilon);
    const auto divided = [=](int64_t i, auto load) { return Simd::divide(load(in + i), Simd::broadcast(root)); };
    if (weight != nullptr && work.scale == 1.0f) {
      for_each_vector(
          size, [=](int64_t i, auto load, auto store) { store(out + i, Simd::multiply(divided(i, load), load(weight + i))); });
      continue;
    }
    for_each_vector(size, [=, &work](int64_t i, auto load, auto store) {
      Vector x = divided(i, load);
      if (weight != nullptr) x = Simd::multiply(x, load(weight + i));
      if (work.scale != 1.0f) x = Simd::multiply(x, Simd::broadcast(work.scale));
      store(out + i, x);
    });
  }
}

void layer_norm(float* out, const float* in, const float* weight, const float* bias, int64_t size, float epsilon) {
  const float divisor = static_cast<float>(size);
  const float mean = fold_values(in, size) / divisor;
  for_each_vector(size,
                  [=](int64_t i, auto load, auto store) { store(out + i, Simd::subtract(load(in + i), Simd::broadcast(mean))); });
  const float root = __builtin_sqrtf(fold_squares(out, size) / divisor + epsilon);
  for_each_vector(size, [=](int64_t i, auto load, auto store) {
    const Vector scaled = Simd::multiply(Simd::divide(load(out + i), Simd::broadcast(root)), load(weight + i));
    store(out + i, bias == nullptr ? scaled : Simd::add(scaled, load(bias + i)));
  });
}

ODMOE_INLINE void rotate_pairs(Vector& a, Vector& b, Vector cos, Vector sin) {
  const Vector turned = Simd::fma(negative(b), sin, Simd::multiply(a, cos));
  b = Simd::fma(a, sin, Simd::multiply(b, cos));
  a = turned;
}

ODMOE_INLINE void rotate_halves(float* head, const float* cos, const float* sin, int64_t pairs) {
  for_each_vector(pairs, [=](int64_t i, auto load, auto store) {
    Vector a = load(head + i);
    Vector b = load(head + pairs + i);
    rotate_pairs(a, b, load(cos + i), load(sin + i));
    store(head + i, a);
    store(head + pairs + i, b);
  });
}

ODMOE_INLINE void rotate_neighbours(float* head, const float* cos, const float* sin, int64_t pairs) {
  int64_t i = 0;
  for (; i + kWidth <= pairs; i += kWidth) {
    Vector a;
    Vector b;
    Simd::load_pairs(head + 2 * i, a, b);
    rotate_pairs(a, b, Simd::load(cos + i), Simd::load(sin + i));
    Simd::store_pairs(head + 2 * i, a, b);
  }
  for (; i < pairs; ++i) {
    const float a = head[2 * i];
    const float b = head[2 * i + 1];
    head[2 * i] = __builtin_fmaf(-b, sin[i], a * cos[i]);
    head[2 * i + 1] = __builtin_fmaf(a, sin[i], b * cos[i]);
  }
}

void rotate(const RotaryWork& work, int64_t begin, int64_t end) {
  const int64_t pairs = work.heads.size / 2;
  for (int64_t index = begin; index < end; ++index) {
    float* const head = vector_at(work.heads, index);
    const int64_t row = index / work.heads.vectors;
    if (work.pairing == RotaryPairing::halves) {
      rotate_halves(head, work.cos + row * pairs, work.sin + row * pairs, pairs);
    } else {
      rotate_neighbours(head, work.cos + row * pairs, work.sin + row * pairs, pairs);
    }
  }
}

}  // namespace
}  // namespace odmoe::cpu
