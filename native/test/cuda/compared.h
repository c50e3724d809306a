// Compares the outputs of one operator on the tested device and on the reference.
#pragma once
#include <functional>

#include "fenced_floats.h"

namespace odmoe::cuda_test {

// Runs a case on one backend and returns all its outputs, including the fences.
using Outputs = std::function<std::vector<float>(const std::shared_ptr<Backend>&)>;

inline void compare(Devices& devices, const std::string& what, const Outputs& outputs) {
  expect_equal(what, outputs(devices.cuda), outputs(devices.reference));
}

inline std::string named(const char* what, int64_t n, int64_t size, int64_t offset) {
  return std::string(what) + " of " + std::to_string(n) + " x " + std::to_string(size) + " at offset " + std::to_string(offset);
}

// Gaps between vectors: behind the vectors of a row, and behind each vector.
struct Gaps {
  int64_t row = 0;
  int64_t vector = 0;
};

// Vectors with gaps, in fenced memory.
class SpacedVectors {
 public:
  SpacedVectors(const std::shared_ptr<Backend>& backend, const std::vector<float>& values, int rows, int vectors, int size,
                Gaps gaps, int64_t offset)
      : memory_(backend, values, offset) {
    vectors_.first = memory_.data();
    vectors_.vector_stride = size + gaps.vector;
    vectors_.row_stride = vectors * vectors_.vector_stride + gaps.row;
    vectors_.rows = rows;
    vectors_.vectors = vectors;
    vectors_.size = size;
  }
  static int64_t floats(int rows, int vectors, int size, Gaps gaps) { return rows * (vectors * (size + gaps.vector) + gaps.row); }
  const Vectors& get() const { return vectors_; }
  std::vector<float> values() const { return memory_.values(); }

 private:
  FencedFloats memory_;
  Vectors vectors_;
};

}  // namespace odmoe::cuda_test
