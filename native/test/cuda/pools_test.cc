// Attention to pools of positions against the reference: entries, and copies of what rows see.
#include <algorithm>
#include <cstring>
#include <memory>

#include "compared.h"
#include "fenced_floats.h"
#include "odmoe/arithmetic.h"

namespace odmoe::cuda_test {
namespace {

constexpr int kPositions = 700;

// A sequence of `vectors` vectors a position on one backend, in planes.
class Planes {
 public:
  Planes(const std::shared_ptr<Backend>& backend, int vectors, int size, const std::vector<float>& rows) {
    for (int start = 0; start < kPositions; start += kAttentionChunk) {
      memory_.push_back(std::make_unique<Floats>(backend, int64_t{vectors} * size * kAttentionChunk));
      blocks_.push_back(memory_.back()->data());
      second_.push_back(blocks_.back() + int64_t{size} * kAttentionChunk);
    }
    AttentionShape shape;
    shape.kv_heads = vectors;
    shape.head_dim = size;
    shape.values_in_keys = true;
    std::vector<AttentionRow> stored;
    for (int position = 0; position < kPositions; ++position) stored.push_back({{blocks_.data(), nullptr}, position});
    const FencedFloats in(backend, rows, 0);
    backend->store_key_values(stored.data(), in.data(), nullptr, int64_t{vectors} * size, kPositions, shape);
  }

  // Keys in the first plane, entries in the second.
  AttentionRow row(int position) const { return {{blocks_.data(), second_.data()}, position}; }

 private:
  std::vector<std::unique_ptr<Floats>> memory_;
  std::vector<float*> blocks_;
  std::vector<float*> second_;
};

void makes_entries(Devices& devices, int size, int positions, bool overlaps) {
  const int vectors = overlaps ? 4 : 2;
  const auto rows = random_floats(devices.random, int64_t{kPositions} * vectors * size);
  const auto biases = random_floats(devices.random, int64_t{positions} * vectors / 2 * size);
  compare(devices, named("pool", size, positions, overlaps ? 2 : 1), [&](const std::shared_ptr<Backend>& backend) {
    const Planes planes(backend, vectors, size, rows);
    const FencedFloats added(backend, biases, 0);
    std::vector<AttentionRow> ending;
    for (int end = positions; end <= kPositions; end += positions) ending.push_back(planes.row(end - 1));
    const auto n = static_cast<int>(ending.size());
    const FencedFloats out(backend, poison(int64_t{n} * size), 0);
    backend->pool({out.data(), ending.data(), added.data(), n, size, positions, overlaps});
    return out.values();
  });
}

void sees(Devices& devices, int size, int positions, int entries, int window, bool whole_pools = false) {
  const auto rows = random_floats(devices.random, int64_t{kPositions} * 2 * size);
  compare(devices, named("seen", size, positions, entries), [&](const std::shared_ptr<Backend>& backend) {
    const Planes planes(backend, 2, size, rows);
    std::vector<AttentionRow> seeing;
    std::vector<int32_t> chosen;
    for (const int position : {0, 1, 7, 100, 255, 256, 699}) {
      seeing.push_back(planes.row(position));
      const int complete = (position + 1) / positions;
      for (int i = 0; i < entries; ++i) chosen.push_back(std::max(0, complete - 2 * entries + 2 * i));
    }
    std::vector<float> bits(chosen.size());
    if (!bits.empty()) std::memcpy(bits.data(), chosen.data(), bits.size() * sizeof(float));
    const FencedFloats sent(backend, bits, 0);
    SeenWork work;
    work.host_rows = seeing.data();
    work.chosen = reinterpret_cast<const int32_t*>(sent.data());
    work.n = static_cast<int>(seeing.size());
    work.size = size;
    work.positions = positions;
    work.entries = entries;
    work.window = window;
    work.whole_pools = whole_pools;
    work.out_stride = gathered_floats(seen_room(work, work.furthest()), size);
    const FencedFloats out(backend, poison(work.n * work.out_stride), 0);
    work.out = out.data();
    backend->gather_seen(work);
    return out.values();
  });
}

}  // namespace

void test_pools(Devices& devices) {
  for (const bool overlaps : {false, true}) {
    makes_entries(devices, 24, 4, overlaps);
    makes_entries(devices, 1, 1, overlaps);
    makes_entries(devices, 100, 7, overlaps);
    makes_entries(devices, 512, 128, overlaps);
  }
  sees(devices, 20, 4, 6, 9);
  sees(devices, 130, 1, 40, 1);
  sees(devices, 16, 128, 700, 300);
  sees(devices, 3, 50, 0, 2);
  sees(devices, 20, 4, 6, 0, true);
  sees(devices, 130, 1, 40, 0, true);
  sees(devices, 16, 128, 700, 0, true);
  sees(devices, 3, 50, 2, 0, true);
}

}  // namespace odmoe::cuda_test
