// Helpers of the C++ tests: named cases, checks that throw, seeded random values.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "odmoe/backend.h"
#include "odmoe/error.h"

namespace odmoe::test {

struct Case {
  std::string name;
  std::function<void()> run;
};

void add_arena_cases(std::vector<Case>& cases);
void add_matmul_cases(std::vector<Case>& cases);
void add_weight_cases(std::vector<Case>& cases);
void add_fixed4_cases(std::vector<Case>& cases);
void add_quantized_weight_cases(std::vector<Case>& cases);
void add_sliced_weight_cases(std::vector<Case>& cases);
void add_block_weight_cases(std::vector<Case>& cases);
void add_elementwise_cases(std::vector<Case>& cases);
void add_norm_cases(std::vector<Case>& cases);
void add_router_cases(std::vector<Case>& cases);
void add_recurrence_cases(std::vector<Case>& cases);
void add_residual_streams_cases(std::vector<Case>& cases);
void add_answer_math_cases(std::vector<Case>& cases);
void add_finite_values_cases(std::vector<Case>& cases);
void add_expert_maps_cases(std::vector<Case>& cases);
void add_service_notice_cases(std::vector<Case>& cases);
void add_attention_cases(std::vector<Case>& cases);
void add_pools_cases(std::vector<Case>& cases);
void add_products_glu_cases(std::vector<Case>& cases);
void add_key_value_cases(std::vector<Case>& cases);
void add_thread_pool_cases(std::vector<Case>& cases);
void add_device_cases(std::vector<Case>& cases);
void add_device_code_cases(std::vector<Case>& cases);
void add_device_decoding_cases(std::vector<Case>& cases);
void add_codec_cases(std::vector<Case>& cases);
void add_codec_kernel_cases(std::vector<Case>& cases);
void add_codec_damage_cases(std::vector<Case>& cases);
void add_codec_block_cases(std::vector<Case>& cases);
void add_plane_cases(std::vector<Case>& cases);
void add_tensor_view_cases(std::vector<Case>& cases);
void add_load_schedule_cases(std::vector<Case>& cases);
void add_expert_loader_cases(std::vector<Case>& cases);
void add_expert_slices_cases(std::vector<Case>& cases);
void add_expert_packing_cases(std::vector<Case>& cases);
void add_expert_loader_fault_cases(std::vector<Case>& cases);
void add_storage_read_cases(std::vector<Case>& cases);
void add_host_chunks_cases(std::vector<Case>& cases);
void add_timer_queue_cases(std::vector<Case>& cases);
void add_cuda_layout_cases(std::vector<Case>& cases);
void add_cuda_host_cases(std::vector<Case>& cases);

// Prints speeds next to the machine's best ones; not a test.
void run_benchmark(const std::string& instruction_set, int threads);
void run_load_benchmark();

// Throws with the message unless the condition holds.
void check(bool condition, const std::string& message);
// Throws unless the values are equal to the bit; any NaN equals any NaN.
void check_same(const float* actual, const float* expected, size_t count, const std::string& what);
inline void check_same(const std::vector<float>& actual, const std::vector<float>& expected, const std::string& what) {
  check(actual.size() == expected.size(), what + ": sizes differ");
  check_same(actual.data(), expected.data(), actual.size(), what);
}
// body must throw an Error of this code.
void check_refused(ErrorCode code, const std::function<void()>& body);

// The instruction sets that this machine can run.
std::vector<std::string> instruction_sets();
std::unique_ptr<Backend> open_backend(const std::string& instruction_set, int threads = 1, uint64_t budget_bytes = 0);

// Normally distributed values.
std::vector<float> random_values(size_t count, uint32_t seed, float deviation = 1.0f);

// Device memory for a test's lifetime.
class DeviceFloats {
 public:
  DeviceFloats(Backend& backend, const std::vector<float>& values);
  DeviceFloats(Backend& backend, size_t count) : DeviceFloats(backend, std::vector<float>(count)) {}
  ~DeviceFloats() { backend_.release(buffer_); }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;
  float* data() const { return static_cast<float*>(buffer_.data); }
  std::vector<float> read() const;

 private:
  Backend& backend_;
  size_t count_;
  DeviceBuffer buffer_;
};

class DeviceMatrix {
 public:
  DeviceMatrix(Backend& backend, WeightFormat format, int64_t rows, int64_t columns);
  // Filled from row-major bytes of one plane.
  DeviceMatrix(Backend& backend, WeightFormat format, int64_t rows, int64_t columns, Split split, const void* values);
  ~DeviceMatrix() { backend_.release(matrix.storage); }
  DeviceMatrix(const DeviceMatrix&) = delete;
  DeviceMatrix& operator=(const DeviceMatrix&) = delete;

  Matrix matrix;

 private:
  Backend& backend_;
};

}  // namespace odmoe::test
