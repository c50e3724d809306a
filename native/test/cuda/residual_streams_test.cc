// Residual streams against the reference, at aligned and unaligned addresses.
#include <algorithm>

#include "compared.h"

namespace odmoe::cuda_test {
namespace {

void weighs(Devices& devices, int rows, const StreamWeightsWork& of) {
  std::vector<float> values = strange_floats(devices.random, int64_t{rows} * of.columns());
  // Ordinary values in most rows: a mix with one that is not finite has no finite ones.
  for (float& value : values) {
    if (devices.random() % 4 != 0) value = std::clamp(value, -3.0f, 3.0f);
  }
  const std::vector<float> scales = random_floats(devices.random, 3);
  const std::vector<float> base = random_floats(devices.random, of.columns());
  compare(devices, named("weights of streams", rows, of.streams, of.rounds), [&](const std::shared_ptr<Backend>& backend) {
    const FencedFloats changed(backend, values, 1);
    const FencedFloats device_scales(backend, scales, 0);
    const FencedFloats device_base(backend, base, 1);
    StreamWeightsWork work = of;
    work.values = changed.data();
    work.scales = device_scales.data();
    work.base = device_base.data();
    work.rows = rows;
    backend->stream_weights(work);
    return changed.values();
  });
}

void mixes(Devices& devices, int rows, int count, int size, int64_t offset, bool mixed) {
  const int64_t columns = StreamMixWork{nullptr, nullptr, nullptr, rows, count, size, mixed}.columns();
  const std::vector<float> streams = strange_floats(devices.random, int64_t{rows} * count * size);
  const std::vector<float> output = strange_floats(devices.random, int64_t{rows} * size);
  const std::vector<float> weights = random_floats(devices.random, rows * columns);
  compare(devices, named("sum of streams", rows, size, offset), [&](const std::shared_ptr<Backend>& backend) {
    const FencedFloats from(backend, streams, offset);
    const FencedFloats by(backend, weights, 0);
    const FencedFloats to(backend, poison(int64_t{rows} * size), offset);
    backend->sum_streams({to.data(), from.data(), by.data(), columns, rows, count, size});
    return to.values();
  });
  compare(devices, named("mix of streams", rows, size, offset), [&](const std::shared_ptr<Backend>& backend) {
    const FencedFloats changed(backend, streams, offset);
    const FencedFloats more(backend, output, 0);
    const FencedFloats by(backend, weights, 0);
    backend->mix_streams({changed.data(), more.data(), by.data(), rows, count, size, mixed});
    return changed.values();
  });
}

StreamWeightsWork weighing(int streams, int rounds, bool ending) {
  StreamWeightsWork work;
  work.streams = streams;
  work.rounds = rounds;
  work.ending = ending;
  work.epsilon = 1e-6f;
  return work;
}

StreamWeightsWork adding(int streams, float magnitude) {
  StreamWeightsWork work = weighing(streams, 0, false);
  work.mixes = false;
  work.magnitude = magnitude;
  return work;
}

}  // namespace

void test_residual_streams(Devices& devices) {
  for (const int rows : {1, 5, 70}) {
    weighs(devices, rows, weighing(4, 20, false));
    weighs(devices, rows, weighing(2, 1, false));
    weighs(devices, rows, weighing(7, 3, false));
    weighs(devices, rows, weighing(kMostStreams, 2, false));
    weighs(devices, rows, weighing(4, 1, true));
    weighs(devices, rows, adding(4, 2.0f));
    weighs(devices, rows, adding(kMostStreams, 1.3f));
  }
  for (const int64_t offset : {0, 1}) {
    for (const bool mixed : {true, false}) {
      mixes(devices, 1, 4, 4096, offset, mixed);
      mixes(devices, 17, 4, 100, offset, mixed);
      mixes(devices, 3, 3, 33, offset, mixed);
      mixes(devices, 2, kMostStreams, 1001, offset, mixed);
    }
  }
}

}  // namespace odmoe::cuda_test
