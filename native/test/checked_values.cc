#include "native_tests.h"

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "odmoe/error.h"

namespace odmoe::test {

void check(bool condition, const std::string& message) {
  if (!condition) throw std::runtime_error(message);
}

void check_same(const float* actual, const float* expected, size_t count, const std::string& what) {
  for (size_t i = 0; i < count; ++i) {
    uint32_t a;
    uint32_t e;
    std::memcpy(&a, actual + i, 4);
    std::memcpy(&e, expected + i, 4);
    if (a == e || (actual[i] != actual[i] && expected[i] != expected[i])) continue;
    char text[160];
    std::snprintf(text, sizeof text, ": element %zu is %a (0x%08x), expected %a (0x%08x)", i, static_cast<double>(actual[i]), a,
                  static_cast<double>(expected[i]), e);
    throw std::runtime_error(what + text);
  }
}

void check_refused(ErrorCode code, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    check(error.code() == code,
          std::string("refused with ") + name_of(error.code()) + " in place of " + name_of(code) + ": " + error.what());
    return;
  }
  throw std::runtime_error(std::string("not refused; expected ") + name_of(code));
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> found;
  for (const char* name : {"avx512", "avx2", "neon", "scalar"}) {
    try {
      open_backend(name);
      found.push_back(name);
    } catch (const Error& error) {
      check(error.code() == ErrorCode::device_unavailable, error.what());
    }
  }
  return found;
}

std::unique_ptr<Backend> open_backend(const std::string& instruction_set, int threads, uint64_t budget_bytes) {
  CpuOptions options;
  options.instruction_set = instruction_set;
  options.threads = threads;
  options.budget_bytes = budget_bytes;
  return make_cpu_backend(options);
}

std::vector<float> random_values(size_t count, uint32_t seed, float deviation) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

DeviceFloats::DeviceFloats(Backend& backend, const std::vector<float>& values)
    : backend_(backend), count_(values.size()), buffer_(backend.allocate(values.size() * sizeof(float))) {
  backend.copy_to_device(buffer_.data, values.data(), values.size() * sizeof(float));
}

std::vector<float> DeviceFloats::read() const {
  std::vector<float> values(count_);
  backend_.copy_to_host(values.data(), buffer_.data, count_ * sizeof(float));
  return values;
}

DeviceMatrix::DeviceMatrix(Backend& backend, WeightFormat format, int64_t rows, int64_t columns) : backend_(backend) {
  matrix.format = format;
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.storage = backend.allocate(backend.matrix_bytes(format, rows, columns));
}

DeviceMatrix::DeviceMatrix(Backend& backend, WeightFormat format, int64_t rows, int64_t columns, Split split, const void* values)
    : DeviceMatrix(backend, format, rows, columns) {
  const uint8_t* const planes[1] = {static_cast<const uint8_t*>(values)};
  check(backend.write_rows(matrix, 0, rows, split, planes), "the format cannot hold the values");
}

}  // namespace odmoe::test
