// odmoe_cuda_tests [--device N] [--seed N] [--without GROUP]... [GROUP...]: runs the groups of cases (all when none is named,
// except the excluded ones) on the device that the library named by ODMOE_CUDA_LIBRARY opens, and compares with the CPU's scalar
// kernels. The exit status is 1 when a case fails.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "cuda_tests.h"
#include "odmoe/cuda.h"
#include "odmoe/error.h"

namespace odmoe::cuda_test {
namespace {

struct Group {
  const char* name;
  void (*run)(Devices&);
};

// The groups, in the order in which they run.
constexpr Group kGroups[] = {
    {"memory", &test_memory},
    {"write_rows", &test_write_rows},
    {"quantized", &test_quantized},
    {"sliced", &test_sliced},
    {"blocks", &test_blocks},
    {"matmul", &test_matmul},
    {"elementwise", &test_elementwise},
    {"normalize", &test_normalize},
    {"vectors", &test_vectors},
    {"recurrence", &test_recurrence},
    {"residual_streams", &test_residual_streams},
    {"router", &test_router},
    {"attention", &test_attention},
    {"pools", &test_pools},
    {"key_values", &test_key_values},
    {"tensor_cores", &test_tensor_cores},
    {"loading", &test_loading},
    {"recovery", &test_recovery},
    {"expert_memory", &test_expert_memory},
    {"expert_paging", &test_expert_paging},
    {"expert_slots", &test_expert_slots},
};

struct Arguments {
  int device = 0;
  unsigned seed = std::random_device()();
  std::vector<std::string> groups;
  std::vector<std::string> left_out;
};

Arguments parse(int count, char** values) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string word = values[i];
    if ((word == "--device" || word == "--seed") && i + 1 < count) {
      const unsigned long number = std::strtoul(values[++i], nullptr, 10);
      if (word == "--device") arguments.device = static_cast<int>(number);
      if (word == "--seed") arguments.seed = static_cast<unsigned>(number);
    } else if (word == "--without" && i + 1 < count) {
      arguments.left_out.push_back(values[++i]);
    } else {
      arguments.groups.push_back(word);
    }
  }
  return arguments;
}

bool is_chosen(const Arguments& arguments, const std::string& name) {
  for (const std::string& group : arguments.left_out) {
    if (group == name) return false;
  }
  for (const std::string& group : arguments.groups) {
    if (group == name) return true;
  }
  return arguments.groups.empty();
}

int run(const Arguments& arguments) {
  Devices devices;
  devices.device = arguments.device;
  devices.cuda = make_cuda_backend({.device = arguments.device});
  devices.reference = make_cpu_backend({.threads = 1, .budget_bytes = 0, .instruction_set = "scalar"});
  const DeviceInfo info = devices.cuda->info();
  std::printf("%s, %s, seed %u\n", info.name.c_str(), info.instruction_set.c_str(), arguments.seed);
  int passed = 0;
  int failed = 0;
  for (const Group& group : kGroups) {
    if (!is_chosen(arguments, group.name)) continue;
    devices.random.seed(arguments.seed);
    try {
      group.run(devices);
      std::printf("passed %s\n", group.name);
      passed++;
    } catch (const std::exception& error) {
      std::printf("FAILED %s: %s\n", group.name, error.what());
      failed++;
    }
    std::fflush(stdout);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace
}  // namespace odmoe::cuda_test

int main(int count, char** values) {
  try {
    return odmoe::cuda_test::run(odmoe::cuda_test::parse(count, values));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "odmoe_cuda_tests: %s\n", error.what());
    return 1;
  }
}
