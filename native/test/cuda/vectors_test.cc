// Rotations, copies, biases, clamps, gates and products of distant vectors, against the reference.
#include "compared.h"

namespace odmoe::cuda_test {
namespace {

// Rotates 2 x pairs dimensions of each head, from `first` on.
struct Rotation {
  int heads;
  int head_dim;
  int first;
  int pairs;
};

void rotates(Devices& devices, int n, const Rotation& rotation, int64_t gap, int64_t offset) {
  const int64_t stride = int64_t{rotation.heads} * rotation.head_dim + gap;
  const std::vector<float> heads = strange_floats(devices.random, n * stride);
  const std::vector<float> cos = random_floats(devices.random, int64_t{n} * rotation.pairs);
  const std::vector<float> sin = random_floats(devices.random, int64_t{n} * rotation.pairs);
  for (const RotaryPairing pairing : {RotaryPairing::halves, RotaryPairing::neighbours}) {
    compare(devices, named("rotation", n, stride, offset) + ", pairs " + std::to_string(rotation.pairs),
            [&](const std::shared_ptr<Backend>& backend) {
              const FencedFloats by_cos(backend, cos, 0);
              const FencedFloats by_sin(backend, sin, offset);
              const FencedFloats turned(backend, heads, offset);
              RotaryWork work;
              work.heads = {turned.data() + rotation.first, stride, rotation.head_dim, n, rotation.heads, 2 * rotation.pairs};
              work.cos = by_cos.data();
              work.sin = by_sin.data();
              work.pairing = pairing;
              backend->rotate(work);
              return turned.values();
            });
  }
}

struct Extent {
  int rows;
  int vectors;
  int size;
  Gaps gaps;
};

// change(backend, x, other vectors of the same extent, `size` floats).
using Change = std::function<void(Backend&, const Vectors&, const Vectors&, const float*)>;

void changes(Devices& devices, const char* what, const Extent& extent, int64_t offset, const Change& change) {
  const Gaps other_gaps{extent.gaps.vector, extent.gaps.row};
  const auto floats = [&](const Gaps& gaps) {
    return strange_floats(devices.random, SpacedVectors::floats(extent.rows, extent.vectors, extent.size, gaps));
  };
  const std::vector<float> x = floats(extent.gaps);
  const std::vector<float> y = floats(other_gaps);
  const std::vector<float> one = random_floats(devices.random, extent.size);
  compare(devices, named(what, extent.rows, int64_t{extent.vectors} * extent.size, offset),
          [&](const std::shared_ptr<Backend>& backend) {
            const SpacedVectors changed(backend, x, extent.rows, extent.vectors, extent.size, extent.gaps, offset);
            const SpacedVectors other(backend, y, extent.rows, extent.vectors, extent.size, other_gaps, 0);
            const FencedFloats single(backend, one, offset);
            change(*backend, changed.get(), other.get(), single.data());
            return changed.values();
          });
}

void changes_of_every_kind(Devices& devices, const Extent& extent, int64_t offset) {
  changes(devices, "bias", extent, offset,
          [](Backend& backend, const Vectors& x, const Vectors&, const float* bias) { backend.add_bias(x, bias); });
  changes(devices, "clamp", extent, offset,
          [](Backend& backend, const Vectors& x, const Vectors&, const float*) { backend.clip(x, 0.75f); });
  for (const Gate kind : {Gate::sigmoid, Gate::silu, Gate::softplus}) {
    changes(devices, "gate", extent, offset,
            [=](Backend& backend, const Vectors& x, const Vectors& gates, const float*) { backend.gate(x, gates, kind); });
    changes(devices, "gate of each vector", extent, offset, [=](Backend& backend, const Vectors& x, Vectors gates, const float*) {
      gates.size = 1;
      backend.gate(x, gates, kind);
    });
  }
  changes(devices, "product in place", extent, offset,
          [](Backend& backend, const Vectors& x, const Vectors& by, const float*) { backend.multiply_elements(x, x, by); });
  changes(devices, "product in the second's place", extent, offset,
          [](Backend& backend, const Vectors& x, const Vectors& by, const float*) { backend.multiply_elements(x, by, x); });
  changes(devices, "square", extent, offset,
          [](Backend& backend, const Vectors& x, const Vectors& by, const float*) { backend.multiply_elements(x, by, by); });
  changes(devices, "product with one vector for all of a row", extent, offset,
          [](Backend& backend, const Vectors& x, const Vectors& by, const float*) {
            Vectors one = by;
            one.vector_stride = 0;
            backend.multiply_elements(x, x, one);
          });
  changes(devices, "copy", extent, offset,
          [](Backend& backend, const Vectors& x, const Vectors& from, const float*) { backend.copy_vectors(x, from); });
}

}  // namespace

void test_vectors(Devices& devices) {
  for (const int64_t offset : {0, 1, 4}) {
    for (const int head_dim : {8, 16, 20, 64, 80, 128}) {
      rotates(devices, 3, {1, head_dim, 0, head_dim / 2}, 0, offset);
      rotates(devices, 5, {6, head_dim, 0, head_dim / 2}, 4, offset);
      rotates(devices, 2, {3, head_dim, 0, head_dim / 2}, 5, offset);
      // Part of a head: the first dimensions, or the last.
      rotates(devices, 4, {3, head_dim, 0, head_dim / 4}, 0, offset);
      rotates(devices, 4, {2, head_dim, head_dim / 2, head_dim / 4}, 8, offset);
      rotates(devices, 1, {5, head_dim, 3, 1}, 1, offset);
    }
    rotates(devices, 2, {4, 192, 128, 32}, 0, offset);
    for (const int size : {1, 4, 6, 63, 128, 2048}) {
      changes_of_every_kind(devices, {1, 1, size, {}}, offset);
      changes_of_every_kind(devices, {5, 1, size, {size % 4 == 0 ? 8 : 3, 0}}, offset);
      changes_of_every_kind(devices, {3, 4, size, {4, size % 4 == 0 ? size : 1}}, offset);
    }
  }
  // More rows than a grid has in its second dimension.
  changes(devices, "product", {65538, 1, 1, {}}, 0,
          [](Backend& backend, const Vectors& x, const Vectors& by, const float*) { backend.multiply_elements(x, x, by); });
  rotates(devices, 65538, {1, 2, 0, 1}, 0, 0);
}

}  // namespace odmoe::cuda_test
