// Device memory with fences that show when a kernel writes outside it.
#pragma once
#include <limits>

#include "cuda_tests.h"

namespace odmoe::cuda_test {

// Values that begin `offset` floats into an aligned buffer, with fences before and behind.
class FencedFloats {
 public:
  FencedFloats(const std::shared_ptr<Backend>& backend, const std::vector<float>& values, int64_t offset)
      : offset_(kFence + offset), floats_(backend, fenced(values, kFence + offset)) {}
  float* data() const { return floats_.data() + offset_; }
  // The values with the fences, so that a comparison includes the fences.
  std::vector<float> values() const { return floats_.values(); }

 private:
  static constexpr int64_t kFence = 32;  // a multiple of 16-byte accesses
  static constexpr float kFenceValue = 12345.678f;

  static std::vector<float> fenced(const std::vector<float>& values, int64_t offset) {
    std::vector<float> all(static_cast<size_t>(offset), kFenceValue);
    all.insert(all.end(), values.begin(), values.end());
    all.insert(all.end(), static_cast<size_t>(kFence), kFenceValue);
    return all;
  }

  int64_t offset_;
  Floats floats_;
};

inline std::vector<float> poison(int64_t count) { return std::vector<float>(static_cast<size_t>(count), -98765.4321f); }

// random_floats with infinities and NaN among them.
inline std::vector<float> strange_floats(std::mt19937& random, int64_t count) {
  std::vector<float> values = random_floats(random, count);
  std::uniform_int_distribution<int> kind(0, 99);
  for (float& value : values) {
    const int drawn = kind(random);
    if (drawn == 0) value = std::numeric_limits<float>::infinity();
    if (drawn == 1) value = -std::numeric_limits<float>::infinity();
    if (drawn == 2) value = std::numeric_limits<float>::quiet_NaN();
    if (drawn == 3) value = std::numeric_limits<float>::denorm_min();
    if (drawn == 4) value = -std::numeric_limits<float>::max();
  }
  return values;
}

}  // namespace odmoe::cuda_test
