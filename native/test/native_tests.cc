#include "native_tests.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

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
    std::snprintf(text, sizeof text, ": element %zu is %a (0x%08x), expected %a (0x%08x)", i,
                  static_cast<double>(actual[i]), a, static_cast<double>(expected[i]), e);
    throw std::runtime_error(what + text);
  }
}

void check_refused(const std::string& code, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    check(error.code() == code, "refused with " + error.code() + " in place of " + code + ": " + error.what());
    return;
  }
  throw std::runtime_error("not refused; expected " + code);
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> found;
  for (const char* name : {"avx512", "avx2", "neon", "scalar"}) {
    try {
      open_backend(name);
      found.push_back(name);
    } catch (const Error& error) {
      check(error.code() == "DEVICE_UNAVAILABLE", error.what());
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

DeviceMatrix::DeviceMatrix(Backend& backend, WeightFormat format, int64_t rows, int64_t columns, Split split,
                           const void* values)
    : DeviceMatrix(backend, format, rows, columns) {
  const uint8_t* const planes[1] = {static_cast<const uint8_t*>(values)};
  check(backend.write_rows(matrix, 0, rows, split, planes), "the format cannot hold the values");
}

}  // namespace odmoe::test

namespace {

const char kUsage[] =
    "usage: odmoe_native_tests [--list | --bench [INSTRUCTION_SET [THREADS]] | --bench-load | NAME_PART]\n"
    "Runs the cases whose names contain NAME_PART (all without one), one line each: pass NAME, or fail NAME: why.\n";

int run_cases(const std::vector<odmoe::test::Case>& cases, const std::string& part) {
  int failed = 0;
  for (const odmoe::test::Case& test : cases) {
    if (test.name.find(part) == std::string::npos) continue;
    std::string why;
    try {
      test.run();
    } catch (const std::exception& error) {
      why = error.what();
      ++failed;
    }
    std::printf("%s %s%s%s\n", why.empty() ? "pass" : "fail", test.name.c_str(), why.empty() ? "" : ": ", why.c_str());
    std::fflush(stdout);
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<odmoe::test::Case> cases;
  odmoe::test::add_arena_cases(cases);
  odmoe::test::add_thread_pool_cases(cases);
  odmoe::test::add_device_cases(cases);
  odmoe::test::add_codec_cases(cases);
  odmoe::test::add_codec_kernel_cases(cases);
  odmoe::test::add_codec_damage_cases(cases);
  odmoe::test::add_plane_cases(cases);
  odmoe::test::add_weight_cases(cases);
  odmoe::test::add_fixed4_cases(cases);
  odmoe::test::add_matmul_cases(cases);
  odmoe::test::add_elementwise_cases(cases);
  odmoe::test::add_attention_cases(cases);
  odmoe::test::add_load_schedule_cases(cases);
  odmoe::test::add_expert_loader_cases(cases);
  odmoe::test::add_expert_loader_fault_cases(cases);
  odmoe::test::add_emulation_cases(cases);
  odmoe::test::add_emulated_load_cases(cases);
  odmoe::test::add_timer_queue_cases(cases);
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--list") {
    for (const odmoe::test::Case& test : cases) std::printf("%s\n", test.name.c_str());
    return 0;
  }
  if (first == "--bench-load") {
    odmoe::test::run_load_benchmark();
    return 0;
  }
  if (first == "--bench") {
    odmoe::test::run_benchmark(argc > 2 ? argv[2] : "auto", argc > 3 ? std::atoi(argv[3]) : 0);
    return 0;
  }
  if (first.rfind("--", 0) == 0) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  return run_cases(cases, first);
}
