// Norms, rotary embedding, SwiGLU and sums against the reference, at aligned and unaligned addresses.
#include <algorithm>
#include <functional>
#include <numeric>

#include "fenced_floats.h"

namespace odmoe::cuda_test {
namespace {

// What one backend makes of the case: all its outputs, fences included.
using Outputs = std::function<std::vector<float>(const std::shared_ptr<Backend>&)>;

void compare(Devices& devices, const std::string& what, const Outputs& outputs) {
  expect_equal(what, outputs(devices.cuda), outputs(devices.reference));
}

std::string named(const char* what, int64_t n, int64_t size, int64_t offset) {
  return std::string(what) + " of " + std::to_string(n) + " x " + std::to_string(size) + " at offset " + std::to_string(offset);
}

void norms(Devices& devices, int n, int size, int64_t offset) {
  for (const bool strange : {false, true}) {
    const int64_t count = int64_t{n} * size;
    std::vector<float> in = strange ? strange_floats(devices.random, count) : random_floats(devices.random, count);
    // Rows of which one has no infinity, and one nothing but denormals.
    for (int i = 0; strange && i < size; ++i) in[static_cast<size_t>(i)] = static_cast<float>(i % 3 - 1) * 0x1p-149f;
    const std::vector<float> weight = random_floats(devices.random, size);
    compare(devices, named("RMS norm", n, size, offset), [&](const std::shared_ptr<Backend>& backend) {
      const FencedFloats from(backend, in, offset);
      const FencedFloats by(backend, weight, offset);
      const FencedFloats to(backend, poison(count), offset);
      backend->rms_norm(to.data(), from.data(), by.data(), n, size, 1e-5f);
      return to.values();
    });
    compare(devices, named("RMS norm in place", n, size, offset), [&](const std::shared_ptr<Backend>& backend) {
      const FencedFloats by(backend, weight, 0);
      const FencedFloats both(backend, in, offset);
      backend->rms_norm(both.data(), both.data(), by.data(), n, size, 0.0f);
      return both.values();
    });
  }
}

void rotates(Devices& devices, int n, int head_count, int head_dim, int64_t gap, int64_t offset) {
  const int64_t stride = int64_t{head_count} * head_dim + gap;
  const std::vector<float> heads = strange_floats(devices.random, n * stride);
  const std::vector<float> cos = random_floats(devices.random, int64_t{n} * head_dim / 2);
  const std::vector<float> sin = random_floats(devices.random, int64_t{n} * head_dim / 2);
  compare(devices, named("RoPE", n, stride, offset), [&](const std::shared_ptr<Backend>& backend) {
    const FencedFloats by_cos(backend, cos, 0);
    const FencedFloats by_sin(backend, sin, offset);
    const FencedFloats turned(backend, heads, offset);
    backend->rope(turned.data(), stride, by_cos.data(), by_sin.data(), n, head_count, head_dim);
    return turned.values();
  });
}

void activates(Devices& devices, int n, int size, int64_t offset) {
  std::vector<float> gate_up = strange_floats(devices.random, int64_t{2} * n * size);
  // Around the ends of what exp() is computed for.
  std::uniform_real_distribution<float> ends(80.0f, 110.0f);
  for (size_t i = 0; i < gate_up.size(); i += 7) gate_up[i] = ends(devices.random) * (i % 2 == 0 ? 1.0f : -1.0f);
  compare(devices, named("SwiGLU", n, size, offset), [&](const std::shared_ptr<Backend>& backend) {
    const FencedFloats from(backend, gate_up, offset);
    const FencedFloats to(backend, poison(int64_t{n} * size), offset);
    backend->swiglu(to.data(), from.data(), n, size);
    return to.values();
  });
}

void adds(Devices& devices, int64_t count, int64_t offset) {
  const std::vector<float> x = strange_floats(devices.random, count);
  const std::vector<float> y = strange_floats(devices.random, count);
  compare(devices, named("sum", 1, count, offset), [&](const std::shared_ptr<Backend>& backend) {
    const FencedFloats more(backend, y, 0);
    const FencedFloats sum(backend, x, offset);
    backend->add(sum.data(), more.data(), count);
    return sum.values();
  });
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

void combines(Devices& devices, int n, int k, int size, int64_t offset) {
  const std::vector<float> hidden = random_floats(devices.random, int64_t{n} * size);
  const std::vector<float> outputs = strange_floats(devices.random, int64_t{n} * k * size);
  const std::vector<float> weights = random_floats(devices.random, int64_t{n} * k);
  compare(devices, named("combined outputs", n, size, offset) + ", k " + std::to_string(k),
          [&](const std::shared_ptr<Backend>& backend) {
            const FencedFloats from(backend, outputs, 0);
            const FencedFloats into(backend, hidden, offset);
            backend->combine(into.data(), from.data(), weights.data(), n, k, size);
            return into.values();
          });
}

}  // namespace

void test_elementwise(Devices& devices) {
  for (const int64_t offset : {0, 1, 4}) {
    for (const int size : {1, 3, 4, 31, 32, 33, 64, 100, 2048, 8192, 8196, 20004}) {
      norms(devices, size < 8192 ? 3 : 1, size, offset);
    }
    for (const int head_dim : {8, 16, 20, 64, 80, 128}) {
      rotates(devices, 3, 1, head_dim, 0, offset);
      rotates(devices, 5, 6, head_dim, 4, offset);
      rotates(devices, 2, 3, head_dim, 5, offset);
    }
    for (const int size : {1, 3, 4, 63, 100, 2048, 3000}) {
      for (const int n : {1, 5}) {
        activates(devices, n, size, offset);
        copies(devices, n, size, offset);
        for (const int k : {1, 2, 5, 8}) combines(devices, n, k, size, offset);
      }
    }
    for (const int64_t count : {1, 2, 3, 4, 5, 1023, 1024, 1025, 10003}) adds(devices, count, offset);
  }
  // More rows than a grid has in its second dimension.
  copies(devices, 65537, 1, 0);
}

}  // namespace odmoe::cuda_test
