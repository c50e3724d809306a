// Residual streams: the weights of a part, its input, and the streams behind it.
#pragma once
#include "kernels_elementwise.h"

namespace odmoe::cpu {
namespace {

// Row `row` of the mix becomes its softmax, plus epsilon.
ODMOE_INLINE void soften_row(float* mix, int64_t streams, float epsilon) {
  float highest = -__builtin_inff();
  for (int64_t k = 0; k < streams; ++k) highest = mix[k] > highest ? mix[k] : highest;
  for_each_vector(streams, [=](int64_t k, auto load, auto store) {
    store(mix + k, exponential(Simd::subtract(load(mix + k), Simd::broadcast(highest))));
  });
  float sum = 0.0f;
  for (int64_t k = 0; k < streams; ++k) sum += mix[k];
  for (int64_t k = 0; k < streams; ++k) mix[k] = mix[k] / sum + epsilon;
}

// Values that lie `step` apart are divided by their sum + epsilon.
ODMOE_INLINE void balance(float* first, int64_t count, int64_t step, float epsilon) {
  float sum = 0.0f;
  for (int64_t i = 0; i < count; ++i) sum += first[i * step];
  sum += epsilon;
  for (int64_t i = 0; i < count; ++i) first[i * step] = first[i * step] / sum;
}

void stream_weights(const StreamWeightsWork& work, int64_t row) {
  const int64_t n = work.streams;
  const Vector epsilon = Simd::broadcast(work.epsilon);
  float* const values = work.values + row * work.columns();
  const auto scaled = [=, &work](int64_t i, int64_t kind, auto load) {
    return Simd::fma(load(values + i), Simd::broadcast(work.scales[kind]), load(work.base + i));
  };
  for_each_vector(n, [=](int64_t i, auto load, auto store) { store(values + i, Simd::add(sigmoid(scaled(i, 0, load)), epsilon)); });
  if (work.ending) return;
  if (!work.mixes) {
    const Vector magnitude = Simd::broadcast(work.magnitude);
    return for_each_vector(n, [=](int64_t i, auto load, auto store) {
      store(values + n + i, Simd::add(Simd::multiply(magnitude, sigmoid(scaled(n + i, 1, load))), epsilon));
    });
  }
  for_each_vector(n, [=](int64_t i, auto load, auto store) {
    store(values + n + i, Simd::multiply(Simd::broadcast(2.0f), sigmoid(scaled(n + i, 1, load))));
  });
  float* const mix = values + 2 * n;
  for_each_vector(n * n, [=](int64_t i, auto load, auto store) { store(mix + i, scaled(2 * n + i, 2, load)); });
  for (int64_t j = 0; j < n; ++j) soften_row(mix + j * n, n, work.epsilon);
  for (int64_t k = 0; k < n; ++k) balance(mix + k, n, n, work.epsilon);
  for (int round = 1; round < work.rounds; ++round) {
    for (int64_t j = 0; j < n; ++j) balance(mix + j * n, n, 1, work.epsilon);
    for (int64_t k = 0; k < n; ++k) balance(mix + k, n, n, work.epsilon);
  }
}

void sum_streams(const StreamSumWork& work, int64_t row, int64_t begin, int64_t end) {
  const float* const streams = work.streams + row * work.count * work.size + begin;
  const float* const weights = work.weights + row * work.weight_stride;
  float* const out = work.out + row * work.size + begin;
  for_each_vector(end - begin, [=, &work](int64_t c, auto load, auto store) {
    Vector sum = Simd::multiply(Simd::broadcast(weights[0]), load(streams + c));
    for (int64_t i = 1; i < work.count; ++i) {
      sum = Simd::fma(Simd::broadcast(weights[i]), load(streams + i * work.size + c), sum);
    }
    store(out + c, sum);
  });
}

// Each stream gets the output, times its own weight.
ODMOE_INLINE void add_to_streams(const StreamMixWork& work, int64_t row, int64_t begin, int64_t end) {
  float* const streams = work.streams + row * work.count * work.size + begin;
  const float* const output = work.output + row * work.size + begin;
  const float* const behind = work.weights + row * work.columns() + work.count;
  for_each_vector(end - begin, [=, &work](int64_t c, auto load, auto store) {
    const Vector added = load(output + c);
    for (int64_t k = 0; k < work.count; ++k) {
      float* const stream = streams + k * work.size + c;
      store(stream, Simd::fma(Simd::broadcast(behind[k]), added, load(stream)));
    }
  });
}

void mix_streams(const StreamMixWork& work, int64_t row, int64_t begin, int64_t end) {
  if (!work.mixes) return add_to_streams(work, row, begin, end);
  const int64_t count = work.count;
  float* const streams = work.streams + row * count * work.size + begin;
  const float* const output = work.output + row * work.size + begin;
  const float* const behind = work.weights + row * (2 + count) * count + count;
  const float* const mix = behind + count;
  for_each_vector(end - begin, [=, &work](int64_t c, auto load, auto store) {
    const Vector added = load(output + c);
    Vector before[kMostStreams];
    for (int64_t j = 0; j < count; ++j) before[j] = load(streams + j * work.size + c);
    for (int64_t k = 0; k < count; ++k) {
      Vector sum = Simd::multiply(Simd::broadcast(behind[k]), added);
      for (int64_t j = 0; j < count; ++j) sum = Simd::fma(Simd::broadcast(mix[j * count + k]), before[j], sum);
      store(streams + k * work.size + c, sum);
    }
  });
}

}  // namespace
}  // namespace odmoe::cpu
