#include <cmath>
#include <cstdio>

#include "cuda_tests.h"

namespace odmoe::cuda_test {

Floats::Floats(std::shared_ptr<Backend> backend, const std::vector<float>& values)
    : backend_(std::move(backend)), count_(static_cast<int64_t>(values.size())) {
  buffer_ = backend_->allocate(values.size() * sizeof(float));
  backend_->copy_to_device(buffer_.data, values.data(), values.size() * sizeof(float));
}

Floats::Floats(std::shared_ptr<Backend> backend, int64_t count)
    : Floats(std::move(backend), std::vector<float>(static_cast<size_t>(count), std::nanf(""))) {}

Floats::~Floats() { backend_->release(buffer_); }

std::vector<float> Floats::values() const {
  std::vector<float> values(static_cast<size_t>(count_));
  backend_->copy_to_host(values.data(), buffer_.data, values.size() * sizeof(float));
  return values;
}

std::vector<float> random_floats(std::mt19937& random, int64_t count) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::uniform_int_distribution<int> kind(0, 63);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = normal(random);
    const int drawn = kind(random);
    if (drawn == 0) value = 0.0f;
    if (drawn == 1) value *= 0x1p-127f;
    if (drawn == 2) value *= 0x1p+12f;
    if (drawn == 3) value = -0.0f;
  }
  return values;
}

void expect_equal(const std::string& what, const std::vector<float>& got, const std::vector<float>& expected) {
  expect(got.size() == expected.size(), what + ": the sizes differ");
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
    if (std::memcmp(&got[i], &expected[i], sizeof(float)) == 0) continue;
    char text[160];
    std::snprintf(text, sizeof text, ": value %zu of %zu is %.9g (%a), expected %.9g (%a)", i, got.size(),
                  static_cast<double>(got[i]), static_cast<double>(got[i]), static_cast<double>(expected[i]),
                  static_cast<double>(expected[i]));
    throw Failure(what + text);
  }
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw Failure(what);
}

}  // namespace odmoe::cuda_test
