#include "residual_streams.h"

#include <algorithm>
#include <vector>

namespace odmoe {
namespace {

struct PartRoles {
  DenseRole map;
  DenseRole scale;
  DenseRole base;
};

constexpr PartRoles kMixer = {DenseRole::mixer_stream_map, DenseRole::mixer_stream_scale, DenseRole::mixer_stream_base};
constexpr PartRoles kFeedForward = {DenseRole::feed_forward_stream_map, DenseRole::feed_forward_stream_scale,
                                    DenseRole::feed_forward_stream_base};
constexpr PartRoles kEnding = {DenseRole::final_stream_map, DenseRole::final_stream_scale, DenseRole::final_stream_base};

// Weights of all rows, rows x StreamWeightsWork::columns(). The normed streams of all rows would take as much memory as the streams.
StreamWeightsWork weigh(PassState& pass, const DenseWeights& weights, const PartRoles& roles, float* values) {
  const StreamsShape& shape = *pass.shape().streams;
  Backend& backend = pass.backend();
  const int64_t size = int64_t{shape.count} * pass.hidden();
  const Matrix& map = weights.matrix(roles.map);
  StreamWeightsWork work{.values = values,
                         .scales = weights.vector(roles.scale),
                         .base = weights.vector(roles.base),
                         .rows = pass.count(),
                         .streams = shape.count,
                         .ending = roles.map == DenseRole::final_stream_map,
                         .epsilon = shape.epsilon,
                         .rounds = shape.rounds,
                         .mixes = shape.mixes,
                         .magnitude = shape.magnitude};
  for (int first = 0; first < pass.count(); first += kExpertTileRows) {
    const int rows = std::min(kExpertTileRows, pass.count() - first);
    const Vectors normed{pass.normed_streams.floats(), size, 0, rows, 1, static_cast<int>(size)};
    Vectors streams = normed;
    streams.first = pass.streams.floats() + first * size;
    backend.normalize({.out = normed, .in = streams, .divisor = static_cast<float>(size), .epsilon = pass.shape().norm_epsilon});
    backend.matmul(values + int64_t{first} * work.columns(), work.columns(), map, normed.first, size, rows);
  }
  backend.stream_weights(work);
  return work;
}

// The same for every row, as if tensors of the model gave them.
StreamWeightsWork mean_weights(PassState& pass, float* values) {
  const int count = pass.shape().streams->count;
  const std::vector<float> weights(static_cast<size_t>(pass.count() * count), 1.0f / static_cast<float>(count));
  pass.backend().copy_to_device(values, weights.data(), weights.size() * sizeof(float));
  return {.values = values, .rows = pass.count(), .streams = count, .ending = true};
}

void add_up(PassState& pass, const StreamWeightsWork& weighed, float* out) {
  pass.backend().sum_streams({.out = out,
                              .streams = pass.streams.floats(),
                              .weights = weighed.values,
                              .weight_stride = weighed.columns(),
                              .rows = pass.count(),
                              .count = weighed.streams,
                              .size = pass.hidden()});
}

}  // namespace

void begin_streams(PassState& pass) {
  if (!pass.shape().streams) return;
  const int count = pass.shape().streams->count;
  std::vector<int32_t> rows(static_cast<size_t>(pass.count()) * static_cast<size_t>(count));
  for (size_t i = 0; i < rows.size(); i++) rows[i] = static_cast<int32_t>(i) / count;
  pass.backend().copy_rows(pass.streams.floats(), nullptr, pass.residual.floats(), rows.data(), static_cast<int>(rows.size()),
                           pass.hidden());
}

void take_streams(PassState& pass, int layer, StreamPart part) {
  if (!pass.shape().streams) return;
  float* const values = pass.stream_weights.floats();
  float* const residual = pass.residual.floats();
  const bool is_end = static_cast<size_t>(layer) == pass.shape().layers.size();
  if (is_end && pass.shape().streams->ends_in_mean) {
    add_up(pass, mean_weights(pass, values), residual);
    return;
  }
  if (is_end) {
    add_up(pass, weigh(pass, pass.model->ending(), kEnding, values), residual);
    return;
  }
  add_up(pass, weigh(pass, pass.model->layer(layer), part == StreamPart::mixer ? kMixer : kFeedForward, values), residual);
}

void add_output(PassState& pass, float* output, float factor) {
  const int64_t values = int64_t{pass.count()} * pass.hidden();
  if (!pass.shape().streams) return pass.backend().add(pass.residual.floats(), output, values, factor);
  const int count = pass.shape().streams->count;
  if (factor != 1) pass.backend().scale(output, values, factor);
  pass.backend().mix_streams({.streams = pass.streams.floats(),
                              .output = output,
                              .weights = pass.stream_weights.floats(),
                              .rows = pass.count(),
                              .count = count,
                              .size = pass.hidden(),
                              .mixes = pass.shape().streams->mixes});
}

void take_streams_ahead(PassState& pass, const DenseWeights& weights, float* out) {
  add_up(pass, weigh(pass, weights, kFeedForward, pass.weights_ahead.floats()), out);
}

}  // namespace odmoe
