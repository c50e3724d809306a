// GLUs, copies and sums against the reference, at aligned and unaligned addresses.
#include <algorithm>
#include <numeric>

#include "compared.h"
#include "glu_shapes.h"

namespace odmoe::cuda_test {
namespace {

void activates(Devices& devices, int n, int size, int64_t offset) {
  std::vector<float> gate_up = strange_floats(devices.random, int64_t{2} * n * size);
  // Values around the limits of exp()'s range.
  std::uniform_real_distribution<float> ends(80.0f, 110.0f);
  for (size_t i = 0; i < gate_up.size(); i += 7) gate_up[i] = ends(devices.random) * (i % 2 == 0 ? 1.0f : -1.0f);
  const std::vector<float> biases = random_floats(devices.random, int64_t{2} * size);
  for (const GluShape& shape : kGluShapes) {
    compare(devices, named("GLU", n, size, offset), [&](const std::shared_ptr<Backend>& backend) {
      const FencedFloats from(backend, gate_up, offset);
      const FencedFloats more(backend, biases, 0);
      const FencedFloats to(backend, poison(int64_t{n} * size), offset);
      backend->glu(to.data(), from.data(), shape.bias ? more.data() : nullptr, n, size, shape);
      return to.values();
    });
  }
  for (const bool in_place : {false, true}) {
    compare(devices, named("squares", n, size, offset), [&](const std::shared_ptr<Backend>& backend) {
      const FencedFloats from(backend, gate_up, offset);
      const FencedFloats to(backend, poison(int64_t{2} * n * size), offset);
      const FencedFloats& out = in_place ? from : to;
      backend->glu(out.data(), from.data(), nullptr, n, size, {0, Activation::relu_squared});
      return out.values();
    });
  }
}

void changes_arrays(Devices& devices, int64_t count, int64_t offset) {
  const std::vector<float> x = strange_floats(devices.random, count);
  const std::vector<float> y = strange_floats(devices.random, count);
  using Change = std::function<void(Backend&, float*, const float*)>;
  const std::pair<const char*, Change> changes[] = {
      {"sum", [&](Backend& backend, float* to, const float* from) { backend.add(to, from, count, 1.0f); }},
      {"scaled sum", [&](Backend& backend, float* to, const float* from) { backend.add(to, from, count, 0.22f); }},
      {"scaling", [&](Backend& backend, float* to, const float*) { backend.scale(to, count, 59.866f); }},
      {"division", [&](Backend& backend, float* to, const float*) { backend.cap_logits(to, count, 16.0f, 0.0f); }},
      {"cap", [&](Backend& backend, float* to, const float*) { backend.cap_logits(to, count, 1.0f, 30.0f); }},
  };
  for (const auto& [what, change] : changes) {
    compare(devices, named(what, 1, count, offset), [&](const std::shared_ptr<Backend>& backend) {
      const FencedFloats more(backend, y, 0);
      const FencedFloats changed(backend, x, offset);
      change(*backend, changed.data(), more.data());
      return changed.values();
    });
  }
}

void copies(Devices& devices, int n, int size, int64_t offset) {
  std::vector<int32_t> shuffled(static_cast<size_t>(n));
  std::iota(shuffled.begin(), shuffled.end(), 0);
  std::shuffle(shuffled.begin(), shuffled.end(), devices.random);
  const std::vector<float> in = random_floats(devices.random, int64_t{n} * size);
  for (int lists = 0; lists < 4; ++lists) {
    compare(devices, named("copied rows", n, size, offset), [&](const std::shared_ptr<Backend>& backend) {
      const FencedFloats from(backend, in, 0);
      const FencedFloats to(backend, poison(int64_t{n} * size), offset);
      backend->copy_rows(to.data(), (lists & 1) != 0 ? shuffled.data() : nullptr, from.data(),
                         (lists & 2) != 0 ? shuffled.data() : nullptr, n, size);
      return to.values();
    });
  }
}

// Tests without an `always` part, with one, and with a gated one; k 0: `always` alone.
void combines(Devices& devices, int n, int k, int size, int64_t offset) {
  const std::vector<float> hidden = random_floats(devices.random, int64_t{n} * size);
  const std::vector<float> outputs = strange_floats(devices.random, int64_t{n} * k * size);
  const std::vector<float> always = strange_floats(devices.random, int64_t{n} * size);
  const std::vector<float> gates = random_floats(devices.random, n);
  const std::vector<float> weights = random_floats(devices.random, int64_t{n} * k);
  for (int kind = k == 0 ? 1 : 0; kind < 3; ++kind) {
    for (const bool add : {true, false}) {
      const float scale = (k + kind) % 2 == 0 ? 1.0f : 0.22f;
      compare(devices, named("combined outputs", n, size, offset) + ", k " + std::to_string(k) + ", kind " + std::to_string(kind),
              [&](const std::shared_ptr<Backend>& backend) {
                const FencedFloats from(backend, outputs, 0);
                const FencedFloats beside(backend, always, offset);
                const FencedFloats by(backend, gates, 1);
                const FencedFloats into(backend, hidden, offset);
                CombineWork work;
                work.hidden = into.data();
                work.outputs = from.data();
                work.host_weights = weights.data();
                work.always = kind == 0 ? nullptr : beside.data();
                work.always_gates = kind == 2 ? by.data() : nullptr;
                work.n = n;
                work.k = k;
                work.size = size;
                work.scale = scale;
                work.add = add;
                backend->combine(work);
                return into.values();
              });
    }
  }
}

}  // namespace

void test_elementwise(Devices& devices) {
  for (const int64_t offset : {0, 1, 4}) {
    for (const int size : {1, 3, 4, 63, 100, 2048, 3000}) {
      for (const int n : {1, 5}) {
        activates(devices, n, size, offset);
        copies(devices, n, size, offset);
        for (const int k : {0, 1, 2, 5, 8}) combines(devices, n, k, size, offset);
      }
    }
    for (const int64_t count : {1, 2, 3, 4, 5, 1023, 1024, 1025, 10003}) changes_arrays(devices, count, offset);
  }
  // More rows than a grid has in its second dimension.
  copies(devices, 65537, 1, 0);
}

}  // namespace odmoe::cuda_test
