// Attention to pools of positions: entries and copies of what rows see, against the one arithmetic.
#include <algorithm>
#include <cstring>
#include <memory>

#include "native_tests.h"
#include "reference_operators.h"

namespace odmoe::test {
namespace {

// A sequence whose positions have `vectors` vectors each, in planes.
class Planes {
 public:
  Planes(Backend& backend, int vectors, int size, int positions, uint32_t seed)
      : vectors_(vectors), size_(size), rows_(random_values(static_cast<size_t>(positions) * vectors * size, seed, 2.0f)) {
    for (int start = 0; start < positions; start += kAttentionChunk) {
      memory_.push_back(std::make_unique<DeviceFloats>(backend, static_cast<size_t>(vectors * size * kAttentionChunk)));
      blocks_.push_back(memory_.back()->data());
    }
    AttentionShape shape;
    shape.kv_heads = vectors;
    shape.head_dim = size;
    shape.values_in_keys = true;
    std::vector<AttentionRow> rows;
    for (int position = 0; position < positions; ++position) rows.push_back({{blocks_.data(), nullptr}, position});
    const DeviceFloats in(backend, rows_);
    backend.store_key_values(rows.data(), in.data(), nullptr, int64_t{vectors} * size, positions, shape);
  }

  float* const* blocks() const { return blocks_.data(); }
  // The list of blocks, moved to a plane.
  std::vector<float*> plane(int number) const {
    std::vector<float*> moved;
    for (float* const block : blocks_) moved.push_back(block + int64_t{number} * size_ * kAttentionChunk);
    return moved;
  }
  const std::vector<float>& rows() const { return rows_; }
  const float* vector(int position, int number) const {
    return &rows_[(static_cast<size_t>(position) * vectors_ + number) * size_];
  }

 private:
  int vectors_;
  int size_;
  std::vector<float> rows_;
  std::vector<std::unique_ptr<DeviceFloats>> memory_;
  std::vector<float*> blocks_;
};

struct PoolCase {
  int size;
  int positions;
  bool overlaps;
};

void pools(Backend& backend, const PoolCase& test) {
  const int vectors = test.overlaps ? 4 : 2;
  const Planes planes(backend, vectors, test.size, 600, 81);
  const auto biases = random_values(static_cast<size_t>(test.positions * vectors / 2 * test.size), 82);
  const DeviceFloats device_biases(backend, biases);
  std::vector<AttentionRow> rows;
  for (const int entry : {0, 1, 2, 5, 600 / test.positions - 1}) {
    if ((entry + 1) * test.positions <= 600) rows.push_back({{planes.blocks(), nullptr}, (entry + 1) * test.positions - 1});
  }
  const auto n = static_cast<int>(rows.size());
  const DeviceFloats out(backend, static_cast<size_t>(n * test.size));
  PoolWork work{out.data(), rows.data(), device_biases.data(), n, test.size, test.positions, test.overlaps};
  backend.pool(work);
  const auto got = out.read();
  work.gate_biases = biases.data();
  for (int i = 0; i < n; ++i) {
    const auto expected = reference_pool(work, planes.rows().data(), rows[static_cast<size_t>(i)].position);
    check_same(&got[static_cast<size_t>(i * test.size)], expected.data(), expected.size(),
               "pool of " + std::to_string(test.positions) + " x " + std::to_string(test.size) + ", row " + std::to_string(i));
  }
}

void makes_entries(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  for (const PoolCase& test : {PoolCase{24, 4, true}, PoolCase{24, 128, false}, PoolCase{1, 1, true}, PoolCase{40, 3, false},
                               PoolCase{37, 7, true}, PoolCase{512, 4, true}}) {
    pools(*backend, test);
  }
}

// What a row sees, in order: plane 1 has the entries, plane 0 the keys.
void sees(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  const int size = 20;
  const Planes planes(*backend, 2, size, 700, 83);
  const auto entry_blocks = planes.plane(1);
  for (const int positions : {1, 4, 128}) {
    for (const int entries : {3, 700}) {
      SeenWork work;
      std::vector<AttentionRow> rows;
      for (const int position : {0, 3, 11, 40, 255, 256, 511, 699}) {
        rows.push_back({{planes.blocks(), entry_blocks.data()}, position});
      }
      work.host_rows = rows.data();
      work.n = static_cast<int>(rows.size());
      work.size = size;
      work.positions = positions;
      work.entries = entries;
      work.window = 9;
      work.out_stride = gathered_floats(most_seen(work, work.furthest()), size);
      const DeviceFloats out(*backend, static_cast<size_t>(work.n * work.out_stride));
      // Of n entries the second, the third and the last are chosen.
      std::vector<int32_t> chosen;
      for (const AttentionRow& row : rows) chosen.insert(chosen.end(), {1, 2, (row.position + 1) / positions - 1});
      std::vector<float> bits(chosen.size());
      std::memcpy(bits.data(), chosen.data(), chosen.size() * sizeof(int32_t));
      const DeviceFloats device_chosen(*backend, bits);
      work.out = out.data();
      if (entries == 3) work.chosen = reinterpret_cast<const int32_t*>(device_chosen.data());
      backend->gather_seen(work);
      const auto got = out.read();
      for (int i = 0; i < work.n; ++i) {
        const int position = rows[static_cast<size_t>(i)].position;
        const int complete = (position + 1) / positions;
        std::vector<float> expected;
        const auto add = [&](const float* vector) { expected.insert(expected.end(), vector, vector + size); };
        for (int entry = 0; entry < complete && (complete <= entries || entry < entries); ++entry) {
          const int one = complete > entries ? chosen[static_cast<size_t>(3 * i + entry)] : entry;
          add(planes.vector((one + 1) * positions - 1, 1));
        }
        for (int p = std::max(0, position - 8); p <= position; ++p) add(planes.vector(p, 0));
        check(static_cast<int64_t>(expected.size()) == most_seen(work, position) * size, "a row sees another number of vectors");
        check_same(&got[static_cast<size_t>(i * work.out_stride)], expected.data(), expected.size(),
                   "what row " + std::to_string(i) + " sees of pools of " + std::to_string(positions));
      }
    }
  }
}

// The keys of whole pools in order, then those of the row's unfinished pool. There are no entries.
void sees_whole_pools(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  const int size = 20;
  const Planes planes(*backend, 1, size, 700, 84);
  for (const int positions : {1, 4, 7, 300}) {
    for (const int entries : {2, 700}) {
      SeenWork work;
      std::vector<AttentionRow> rows;
      for (const int position : {0, 3, 11, 40, 255, 256, 699}) rows.push_back({{planes.blocks(), nullptr}, position});
      work.host_rows = rows.data();
      work.n = static_cast<int>(rows.size());
      work.size = size;
      work.positions = positions;
      work.entries = entries;
      work.whole_pools = true;
      work.out_stride = gathered_floats(seen_room(work, work.furthest()), size);
      const DeviceFloats out(*backend, static_cast<size_t>(work.n * work.out_stride));
      // The second and the last pool are chosen.
      std::vector<int32_t> chosen;
      for (const AttentionRow& row : rows) chosen.insert(chosen.end(), {1, (row.position + 1) / positions - 1});
      std::vector<float> bits(chosen.size());
      std::memcpy(bits.data(), chosen.data(), chosen.size() * sizeof(int32_t));
      const DeviceFloats device_chosen(*backend, bits);
      work.out = out.data();
      if (entries == 2) work.chosen = reinterpret_cast<const int32_t*>(device_chosen.data());
      backend->gather_seen(work);
      const auto got = out.read();
      for (int i = 0; i < work.n; ++i) {
        const int position = rows[static_cast<size_t>(i)].position;
        const int complete = (position + 1) / positions;
        std::vector<float> expected;
        for (int p = 0; p <= position; ++p) {
          const int pool = p / positions;
          const bool seen = complete <= entries || pool == 1 || pool >= complete - 1;
          if (seen) expected.insert(expected.end(), planes.vector(p, 0), planes.vector(p, 0) + size);
        }
        check(static_cast<int64_t>(expected.size()) == most_seen(work, position) * size, "a row sees another number of keys");
        check(most_seen(work, position) <= seen_room(work, work.furthest()), "a row sees more keys than there is room for");
        check_same(&got[static_cast<size_t>(i * work.out_stride)], expected.data(), expected.size(),
                   "what row " + std::to_string(i) + " sees of whole pools of " + std::to_string(positions));
      }
    }
  }
}

}  // namespace

void add_pools_cases(std::vector<Case>& cases) {
  for (const std::string& set : instruction_sets()) {
    for (const int threads : {1, 3}) {
      const std::string with = std::to_string(threads) + " threads";
      cases.push_back({"pools " + set + ": entries equal the one arithmetic, " + with, [=] { makes_entries(set, threads); }});
      cases.push_back({"pools " + set + ": rows see entries and windows, " + with, [=] { sees(set, threads); }});
      cases.push_back({"pools " + set + ": rows see whole pools, " + with, [=] { sees_whole_pools(set, threads); }});
    }
  }
}

}  // namespace odmoe::test
