// Functions of one value (exp, log, sigmoid, tanh, softplus), and operators that compute each element by itself.
#pragma once
#include "kernels_dot.h"

namespace odmoe::cpu {
namespace {

ODMOE_INLINE Vector negative(Vector x) { return Simd::multiply(x, Simd::broadcast(-1.0f)); }

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

// The logarithm of positive normal values.
ODMOE_INLINE Vector logarithm(Vector x) {
  Vector n;
  Vector mantissa;
  Simd::split_power(x, n, mantissa);
  const Vector f = Simd::subtract(mantissa, Simd::broadcast(1.0f));
  Vector q = Simd::broadcast(kLogCoefficients[8]);
  for (int i = 7; i >= 0; --i) q = Simd::fma(q, f, Simd::broadcast(kLogCoefficients[i]));
  const Vector square = Simd::multiply(f, f);
  const Vector inner = Simd::fma(Simd::multiply(square, f), q, Simd::multiply(Simd::broadcast(-0.5f), square));
  const Vector y = Simd::fma(n, Simd::broadcast(kLn2Low), inner);
  return Simd::fma(n, Simd::broadcast(kLn2High), Simd::add(f, y));
}

// 1 + exp(-x): the divisor of sigmoid(x) and silu(x).
ODMOE_INLINE Vector sigmoid_divisor(Vector x) { return Simd::add(Simd::broadcast(1.0f), exponential(negative(x))); }
ODMOE_INLINE Vector sigmoid(Vector x) { return Simd::divide(Simd::broadcast(1.0f), sigmoid_divisor(x)); }
ODMOE_INLINE Vector silu(Vector x) { return Simd::divide(x, sigmoid_divisor(x)); }

ODMOE_INLINE Vector hyperbolic_tangent(Vector x) {
  const Vector one = Simd::broadcast(1.0f);
  const Vector t = exponential(Simd::multiply(Simd::absolute(x), Simd::broadcast(-2.0f)));
  return Simd::copy_sign(Simd::divide(Simd::subtract(one, t), Simd::add(one, t)), x);
}

ODMOE_INLINE Vector softplus(Vector x) {
  const Vector one = Simd::broadcast(1.0f);
  const Vector e = exponential(x);
  const Vector u = Simd::add(one, e);
  const Vector lost = Simd::divide(Simd::subtract(e, Simd::subtract(u, one)), u);
  return Simd::select_greater(x, Simd::broadcast(kSoftplusLinear), x, Simd::add(logarithm(u), lost));
}

// Limits x to +-limit; NaN stays.
ODMOE_INLINE Vector limited(Vector x, float limit) {
  return Simd::greater(Simd::broadcast(-limit), Simd::lesser(Simd::broadcast(limit), x));
}

ODMOE_INLINE float first_lane(Vector v) {
  float lanes[kWidth];
  Simd::store(lanes, v);
  return lanes[0];
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

ODMOE_INLINE Vector gelu_gate(Vector g) {
  const Vector cubic = Simd::multiply(Simd::multiply(Simd::broadcast(kGeluCubic), g), g);
  const Vector t = Simd::multiply(Simd::fma(cubic, g, g), Simd::broadcast(kGeluScale));
  const Vector half = Simd::multiply(Simd::broadcast(0.5f), g);
  return Simd::multiply(half, Simd::add(Simd::broadcast(1.0f), hyperbolic_tangent(t)));
}

// The parts of a GLU's shape that a loop computes: none, a limit of its inputs, or a limit of the activation.
enum class GluForm { plain, inputs, activation };

// One loop for each kind of GLU, so that absent parts of a shape cost nothing.
template <bool kTanh, bool kBias, GluForm kForm>
void glu_of(const GluJob& job) {
  const float limit = job.limit > 0.0f ? job.limit : __builtin_inff();
  // Adding -0 changes nothing; adding +0 would turn -0 into +0.
  const float offset = job.up_offset == 0.0f ? -0.0f : job.up_offset;
  for_each_vector(job.count, [=](int64_t i, auto load, auto store) {
    Vector g = load(job.gate + i);
    Vector u = load(job.up + i);
    if constexpr (kBias) {
      g = Simd::add(g, load(job.gate_bias + i));
      u = Simd::add(u, load(job.up_bias + i));
    }
    if constexpr (kForm == GluForm::inputs) g = Simd::lesser(Simd::broadcast(limit), g);
    if constexpr (kForm != GluForm::plain) u = limited(u, limit);
    Vector activated;
    if constexpr (kTanh) {
      activated = gelu_gate(g);
    } else if constexpr (kForm == GluForm::plain) {
      activated = silu(g);
    } else {
      activated = Simd::divide(g, sigmoid_divisor(Simd::multiply(Simd::broadcast(job.alpha), g)));
      u = Simd::add(u, Simd::broadcast(offset));
    }
    if constexpr (kForm == GluForm::activation) activated = Simd::lesser(Simd::broadcast(limit), activated);
    store(job.out + i, Simd::multiply(activated, u));
  });
}

template <GluForm kForm>
void glu_in_form(const GluJob& job) {
  const bool bias = job.gate_bias != nullptr;
  if (job.tanh) return bias ? glu_of<true, true, kForm>(job) : glu_of<true, false, kForm>(job);
  return bias ? glu_of<false, true, kForm>(job) : glu_of<false, false, kForm>(job);
}

void relu_squared(float* out, const float* in, int64_t count) {
  for_each_vector(count, [=](int64_t i, auto load, auto store) {
    const Vector positive = Simd::greater(Simd::zero(), load(in + i));
    store(out + i, Simd::multiply(positive, positive));
  });
}

void glu(const GluJob& job) {
  const bool plain = !(job.limit > 0.0f) && (job.tanh || (job.alpha == 1.0f && job.up_offset == 0.0f));
  if (plain) return glu_in_form<GluForm::plain>(job);
  return job.limits_activation ? glu_in_form<GluForm::activation>(job) : glu_in_form<GluForm::inputs>(job);
}

void add(float* x, const float* y, int64_t count, float scale) {
  if (scale == 1.0f) {
    for_each_vector(count, [=](int64_t i, auto load, auto store) { store(x + i, Simd::add(load(x + i), load(y + i))); });
    return;
  }
  for_each_vector(count, [=](int64_t i, auto load, auto store) {
    store(x + i, Simd::add(load(x + i), Simd::multiply(load(y + i), Simd::broadcast(scale))));
  });
}

void scale(float* x, int64_t count, float factor) {
  for_each_vector(count,
                  [=](int64_t i, auto load, auto store) { store(x + i, Simd::multiply(load(x + i), Simd::broadcast(factor))); });
}

void clip(float* x, int64_t count, float limit) {
  for_each_vector(count, [=](int64_t i, auto load, auto store) { store(x + i, limited(load(x + i), limit)); });
}

template <Gate kKind>
ODMOE_INLINE Vector gate_factor(Vector gates) {
  if constexpr (kKind == Gate::silu) return silu(gates);
  if constexpr (kKind == Gate::softplus) return softplus(gates);
  return sigmoid(gates);
}

template <Gate kKind>
void gate_by(float* x, const float* gates, int64_t count) {
  for_each_vector(count, [=](int64_t i, auto load, auto store) {
    store(x + i, Simd::multiply(load(x + i), gate_factor<kKind>(load(gates + i))));
  });
}

void gate(float* x, const float* gates, int64_t count, Gate kind) {
  switch (kind) {
    case Gate::sigmoid: return gate_by<Gate::sigmoid>(x, gates, count);
    case Gate::silu: return gate_by<Gate::silu>(x, gates, count);
    case Gate::softplus: return gate_by<Gate::softplus>(x, gates, count);
  }
}

// One gate for all values.
void gate_all(float* x, float by, int64_t count, Gate kind) {
  float factor = 1.0f;
  gate(&factor, &by, 1, kind);
  scale(x, count, factor);
}

void multiply_elements(float* out, const float* a, const float* b, int64_t count) {
  for_each_vector(count, [=](int64_t i, auto load, auto store) { store(out + i, Simd::multiply(load(a + i), load(b + i))); });
}

// The divisor 1 changes nothing.
void cap_logits(float* x, int64_t count, float divisor, float cap) {
  const auto capped = [=](Vector logit) {
    const Vector tangent = hyperbolic_tangent(Simd::divide(logit, Simd::broadcast(cap)));
    return Simd::multiply(Simd::broadcast(cap), tangent);
  };
  for_each_vector(count, [=](int64_t i, auto load, auto store) {
    Vector logit = load(x + i);
    if (divisor != 1.0f) logit = Simd::divide(logit, Simd::broadcast(divisor));
    store(x + i, cap == 0.0f ? logit : capped(logit));
  });
}

void combine(const CombineWork& work, int64_t row, int64_t begin, int64_t end) {
  float* const hidden = work.hidden + row * work.size + begin;
  const float* const outputs = work.k == 0 ? nullptr : work.outputs + row * work.k * work.size + begin;
  const float* const weights = work.k == 0 ? nullptr : work.host_weights + row * work.k;
  const float* const always = work.always == nullptr ? nullptr : work.always + row * work.size + begin;
  const float gate = work.always_gates == nullptr ? 1.0f : first_lane(sigmoid(Simd::broadcast(work.always_gates[row])));
  for_each_vector(end - begin, [=, &work](int64_t i, auto load, auto store) {
    Vector sum = Simd::zero();
    if (work.k > 0) {
      sum = Simd::multiply(Simd::broadcast(weights[0]), load(outputs + i));
      for (int rank = 1; rank < work.k; ++rank) {
        sum = Simd::fma(Simd::broadcast(weights[rank]), load(outputs + int64_t{rank} * work.size + i), sum);
      }
      if (always != nullptr) sum = Simd::fma(Simd::broadcast(gate), load(always + i), sum);
    } else if (always != nullptr) {
      sum = Simd::multiply(Simd::broadcast(gate), load(always + i));
    }
    if (!work.add) return store(hidden + i, sum);
    if (work.scale != 1.0f) sum = Simd::multiply(sum, Simd::broadcast(work.scale));
    store(hidden + i, Simd::add(load(hidden + i), sum));
  });
}

// out = exp((x - highest) / divisor).
void exponentials(float* out, const float* x, int64_t count, float highest, float divisor) {
  for_each_vector(count, [=](int64_t i, auto load, auto store) {
    const Vector below = Simd::subtract(load(x + i), Simd::broadcast(highest));
    store(out + i, exponential(Simd::divide(below, Simd::broadcast(divisor))));
  });
}

}  // namespace
}  // namespace odmoe::cpu
