// Tests of the CUDA backend against the CPU's scalar kernels. Every file names its groups of cases in cuda_tests.cc.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "odmoe/backend.h"

namespace odmoe::cuda_test {

// The tested device, and the CPU's scalar kernels, which are the reference.
struct Devices {
  std::shared_ptr<Backend> cuda;
  std::shared_ptr<Backend> reference;
  int device = 0;
  std::mt19937 random;  // uses the printed seed: --seed N repeats a run
};

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A device's memory that holds these values, or is filled with NaN.
class Floats {
 public:
  Floats(std::shared_ptr<Backend> backend, const std::vector<float>& values);
  Floats(std::shared_ptr<Backend> backend, int64_t count);  // poisoned
  ~Floats();
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  float* data() const { return static_cast<float*>(buffer_.data); }
  std::vector<float> values() const;

 private:
  std::shared_ptr<Backend> backend_;
  DeviceBuffer buffer_;
  int64_t count_;
};

// Values with a usual spread, with some zeros, denormals and large values among them.
std::vector<float> random_floats(std::mt19937& random, int64_t count);

// Throws Failure unless all are equal to the bit (any NaN equals any other), naming the first that differs.
void expect_equal(const std::string& what, const std::vector<float>& got, const std::vector<float>& expected);
void expect(bool condition, const std::string& what);

void test_matmul(Devices& devices);
void test_write_rows(Devices& devices);
void test_quantized(Devices& devices);
void test_sliced(Devices& devices);
void test_blocks(Devices& devices);
void test_tensor_cores(Devices& devices);
void test_elementwise(Devices& devices);
void test_normalize(Devices& devices);
void test_vectors(Devices& devices);
void test_recurrence(Devices& devices);
void test_residual_streams(Devices& devices);
void test_router(Devices& devices);
void test_attention(Devices& devices);
void test_pools(Devices& devices);
void test_key_values(Devices& devices);
void test_loading(Devices& devices);
void test_recovery(Devices& devices);
void test_expert_memory(Devices& devices);
void test_expert_paging(Devices& devices);
void test_expert_slots(Devices& devices);
void test_memory(Devices& devices);

}  // namespace odmoe::cuda_test
