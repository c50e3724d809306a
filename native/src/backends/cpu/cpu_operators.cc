// Operators on rows and elements, cut into tasks.
#include <cstring>
#include <string>

#include "cpu_backend.h"
#include "odmoe/error.h"

namespace odmoe::cpu {
namespace {

// Channels of a convolution, and value dimensions of a delta rule's or a state space's head, in one task.
constexpr int64_t kConvolutionChannels = 1024;
constexpr int64_t kDeltaDimensions = 64;

int64_t vector_count(const Vectors& all) { return int64_t{all.rows} * all.vectors; }

float* vector_at(const Vectors& all, int64_t index) {
  return all.first + index / all.vectors * all.row_stride + index % all.vectors * all.vector_stride;
}

// For operators that treat all elements alike, the adjacent vectors of a row are one vector.
bool is_dense(const Vectors& all) { return all.vectors == 1 || all.vector_stride == all.size; }
Vectors joined(Vectors all) {
  all.size *= all.vectors;
  all.vectors = 1;
  return all;
}

}  // namespace

void CpuBackend::normalize(const NormWork& work) {
  for_ranges(vector_count(work.in), work.in.size,
             [=, &work, this](int64_t begin, int64_t end, int) { kernels_.normalize(work, begin, end); });
}

void CpuBackend::layer_norm(float* out, const float* in, const float* weight, const float* bias, int n, int size, float epsilon) {
  for_ranges(n, size, [=, this](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) kernels_.layer_norm(out + i * size, in + i * size, weight, bias, size, epsilon);
  });
}

void CpuBackend::rotate(const RotaryWork& work) {
  for_ranges(vector_count(work.heads), work.heads.size,
             [=, &work, this](int64_t begin, int64_t end, int) { kernels_.rotate(work, begin, end); });
}

void CpuBackend::router(const RouterWork& work) {
  check_router(work, kMaxExperts);
  for_ranges(work.n, int64_t{work.experts} * 8, [=, &work, this](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) kernels_.router(work, i, thread_scratch(thread));
  });
  if (work.host_logits != nullptr) copy_to_host(work.host_logits, work.logits, logit_bytes(work));
  copy_to_host(work.along.host, work.along.device, work.along.bytes);
}

void CpuBackend::glu(float* out, const float* gate_up, const float* biases, int n, int size, const GluShape& shape) {
  if (!shape.has_gate()) {
    return for_pieces(1, int64_t{2} * n * size, [=, this](int64_t, int64_t begin, int64_t end) {
      kernels_.relu_squared(out + begin, gate_up + begin, end - begin);
    });
  }
  for_pieces(n, size, [=, &shape, this](int64_t i, int64_t begin, int64_t end) {
    const float* const gate = gate_up + i * 2 * size + begin;
    const float* const gate_bias = biases == nullptr ? nullptr : biases + begin;
    const float* const up_bias = biases == nullptr ? nullptr : biases + size + begin;
    kernels_.glu({out + i * size + begin, gate, gate + size, gate_bias, up_bias, end - begin, shape.activation == Activation::tanh,
                  shape.alpha, shape.limit, shape.up_offset, shape.limits_activation});
  });
}

void CpuBackend::copy_vectors(const Vectors& out, const Vectors& in) {
  if (is_dense(out) && is_dense(in) && out.vectors > 1) return copy_vectors(joined(out), joined(in));
  for_pieces(vector_count(out), out.size, [=, &out, &in](int64_t i, int64_t begin, int64_t end) {
    std::memcpy(vector_at(out, i) + begin, vector_at(in, i) + begin, static_cast<size_t>(end - begin) * sizeof(float));
  });
}

void CpuBackend::add(float* x, const float* y, int64_t count, float scale) {
  for_pieces(1, count, [=, this](int64_t, int64_t begin, int64_t end) { kernels_.add(x + begin, y + begin, end - begin, scale); });
}

void CpuBackend::scale(float* x, int64_t count, float factor) {
  for_pieces(1, count, [=, this](int64_t, int64_t begin, int64_t end) { kernels_.scale(x + begin, end - begin, factor); });
}

void CpuBackend::add_bias(const Vectors& x, const float* bias) {
  for_pieces(vector_count(x), x.size, [=, &x, this](int64_t i, int64_t begin, int64_t end) {
    kernels_.add(vector_at(x, i) + begin, bias + begin, end - begin, 1.0f);
  });
}

void CpuBackend::clip(const Vectors& x, float limit) {
  if (is_dense(x) && x.vectors > 1) return clip(joined(x), limit);
  for_pieces(vector_count(x), x.size,
             [=, &x, this](int64_t i, int64_t begin, int64_t end) { kernels_.clip(vector_at(x, i) + begin, end - begin, limit); });
}

void CpuBackend::gate(const Vectors& x, const Vectors& gates, Gate gate) {
  if (gates.size != x.size) {
    for_pieces(vector_count(x), x.size, [=, &x, &gates, this](int64_t i, int64_t begin, int64_t end) {
      kernels_.gate_all(vector_at(x, i) + begin, *vector_at(gates, i), end - begin, gate);
    });
    return;
  }
  if (is_dense(x) && is_dense(gates) && x.vectors > 1) return this->gate(joined(x), joined(gates), gate);
  for_pieces(vector_count(x), x.size, [=, &x, &gates, this](int64_t i, int64_t begin, int64_t end) {
    kernels_.gate(vector_at(x, i) + begin, vector_at(gates, i) + begin, end - begin, gate);
  });
}

void CpuBackend::multiply_elements(const Vectors& out, const Vectors& a, const Vectors& b) {
  if (is_dense(out) && is_dense(a) && is_dense(b) && out.vectors > 1) {
    return multiply_elements(joined(out), joined(a), joined(b));
  }
  for_pieces(vector_count(out), out.size, [=, &out, &a, &b, this](int64_t i, int64_t begin, int64_t end) {
    kernels_.multiply_elements(vector_at(out, i) + begin, vector_at(a, i) + begin, vector_at(b, i) + begin, end - begin);
  });
}

void CpuBackend::cap_logits(float* x, int64_t count, float divisor, float cap) {
  for_pieces(1, count,
             [=, this](int64_t, int64_t begin, int64_t end) { kernels_.cap_logits(x + begin, end - begin, divisor, cap); });
}

void CpuBackend::convolve(const ConvolutionWork* works, int count) {
  int64_t channels = 0;
  for (int i = 0; i < count; ++i) {
    if (works[i].taps < 1 || works[i].taps > kMostTaps) {
      throw Error(ErrorCode::model_unsupported,
                  "a convolution has 1 to " + std::to_string(kMostTaps) + " taps, not " + std::to_string(works[i].taps));
    }
    channels = std::max(channels, works[i].channels);
  }
  const int64_t pieces = (channels + kConvolutionChannels - 1) / kConvolutionChannels;
  pool_.run(count * pieces, [=, this](int64_t task, int) {
    const ConvolutionWork& work = works[task / pieces];
    const int64_t begin = task % pieces * kConvolutionChannels;
    if (begin < work.channels) kernels_.convolve(work, begin, std::min(work.channels, begin + kConvolutionChannels));
  });
}

void CpuBackend::delta_rule(const DeltaWork* works, int count) {
  int64_t heads = 0;
  int64_t pieces = 0;
  for (int i = 0; i < count; ++i) {
    heads = std::max<int64_t>(heads, works[i].value_heads);
    pieces = std::max<int64_t>(pieces, (works[i].value_dim + kDeltaDimensions - 1) / kDeltaDimensions);
  }
  pool_.run(count * heads * pieces, [=, this](int64_t task, int thread) {
    const DeltaWork& work = works[task / pieces / heads];
    const int64_t head = task / pieces % heads;
    const int64_t begin = task % pieces * kDeltaDimensions;
    if (head >= work.value_heads || begin >= work.value_dim) return;
    kernels_.delta_rule(work, head, begin, std::min<int64_t>(work.value_dim, begin + kDeltaDimensions), thread_scratch(thread));
  });
}

void CpuBackend::channel_decay(const DecayWork& work) {
  const Vectors& all = work.decays;
  for_pieces(vector_count(all), all.size, [=, &work, this](int64_t i, int64_t begin, int64_t end) {
    kernels_.channel_decay(work, vector_at(work.decays, i), i % work.decays.vectors, begin, end);
  });
}

void CpuBackend::state_space(const StateSpaceWork* works, int count) {
  int64_t heads = 0;
  int64_t pieces = 0;
  for (int i = 0; i < count; ++i) {
    heads = std::max<int64_t>(heads, works[i].heads);
    pieces = std::max<int64_t>(pieces, (works[i].head_dim + kDeltaDimensions - 1) / kDeltaDimensions);
  }
  pool_.run(count * heads * pieces, [=, this](int64_t task, int thread) {
    const StateSpaceWork& work = works[task / pieces / heads];
    const int64_t head = task / pieces % heads;
    const int64_t begin = task % pieces * kDeltaDimensions;
    if (head >= work.heads || begin >= work.head_dim) return;
    kernels_.state_space(work, head, begin, std::min<int64_t>(work.head_dim, begin + kDeltaDimensions), thread_scratch(thread));
  });
}

void CpuBackend::combine(const CombineWork& work) {
  for_pieces(work.n, work.size, [=, &work, this](int64_t i, int64_t begin, int64_t end) { kernels_.combine(work, i, begin, end); });
}

void CpuBackend::stream_weights(const StreamWeightsWork& work) {
  const int64_t divisions = work.mixes ? int64_t{work.streams} * work.streams * work.rounds : 0;
  for_ranges(work.rows, work.columns() + divisions, [=, &work, this](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) kernels_.stream_weights(work, i);
  });
}

void CpuBackend::sum_streams(const StreamSumWork& work) {
  for_pieces(work.rows, work.size,
             [=, &work, this](int64_t i, int64_t begin, int64_t end) { kernels_.sum_streams(work, i, begin, end); });
}

void CpuBackend::mix_streams(const StreamMixWork& work) {
  for_pieces(work.rows, work.size,
             [=, &work, this](int64_t i, int64_t begin, int64_t end) { kernels_.mix_streams(work, i, begin, end); });
}

}  // namespace odmoe::cpu
