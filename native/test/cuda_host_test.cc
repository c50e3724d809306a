// Decisions of the CUDA backend on the host without a device: the code that serves a device, our error for a CUDA error, the
// answers of the management library, and the time of its next query.
#include <unistd.h>

#include <cstring>

#include "../src/backends/cuda/code_names.h"
#include "../src/backends/cuda/error_codes.h"
#include "../src/backends/cuda/nvml_api.h"
#include "../src/backends/cuda/recent_figure.h"
#include "native_tests.h"

namespace odmoe::test {
namespace {

void code_serves_devices() {
  struct Expected {
    const char* code;
    int capability;
    bool serves;
  };
  constexpr Expected kExpected[] = {
      {"sm_86", 86, true},       {"sm_86", 89, true},         {"sm_86", 80, false},      {"sm_86", 90, false},
      {"sm_80", 86, true},       {"sm_120", 121, true},       {"sm_100", 103, true},     {"sm_90", 100, false},
      {"sm_86", 87, false},      {"sm_80", 87, false},        {"sm_87", 87, true},       {"sm_87", 89, false},
      {"sm_70", 72, false},      {"sm_72", 75, false},        {"sm_100", 101, false},    {"sm_101", 103, false},
      {"sm_101", 101, true},     {"sm_101", 110, false},      {"sm_110", 110, true},     {"compute_86", 87, true},
      {"compute_90", 87, false}, {"compute_90", 90, true},    {"compute_90", 120, true}, {"compute_101", 110, true},
      {"compute_87", 86, false}, {"compute_110", 101, false}, {"nothing", 86, false},
  };
  for (const Expected& expected : kExpected) {
    check(cuda::serves(expected.code, expected.capability) == expected.serves,
          std::string(expected.code) + (expected.serves ? " serves " : " does not serve ") + std::to_string(expected.capability));
  }
}

void errors_are_ours() {
  const auto is = [](cudaError_t error, ErrorCode opening, ErrorCode later) {
    check(cuda::error_code(error, true) == opening, "error " + std::to_string(error) + " of an opening is not " + name_of(opening));
    check(cuda::error_code(error, false) == later, "error " + std::to_string(error) + " is not " + name_of(later));
  };
  const auto is_always = [&](cudaError_t error, ErrorCode code) { is(error, code, code); };
  is_always(cudaErrorMemoryAllocation, ErrorCode::device_out_of_memory);
  is_always(cudaErrorInsufficientDriver, ErrorCode::device_driver_too_old);
  is_always(cudaErrorCallRequiresNewerDriver, ErrorCode::device_driver_too_old);
  is_always(cudaErrorNoKernelImageForDevice, ErrorCode::device_architecture_unsupported);
  is_always(cudaErrorInvalidValue, ErrorCode::internal);
  is_always(cudaErrorIllegalAddress, ErrorCode::device_lost);
  is_always(cudaErrorUnknown, ErrorCode::device_lost);
  for (const cudaError_t error : {cudaErrorNoDevice, cudaErrorNotPermitted, cudaErrorDevicesUnavailable,
                                  cudaErrorJitCompilerNotFound, cudaErrorJitCompilationDisabled}) {
    is(error, ErrorCode::device_unavailable, ErrorCode::device_lost);
  }
}

// A management library that lists these processes, process i with 1000 + i bytes.
struct Listed {
  unsigned int first_pid = 1;
  unsigned int count = 0;
  size_t entry_bytes = 24;
  int calls = 0;
  unsigned int more_each_call = 0;
};
Listed listed;
constexpr unsigned int kInstance = 3;

int list_processes(void* device, unsigned int* count, void* processes) {
  check(device == &listed, "another device is asked for");
  listed.calls++;
  listed.count += listed.more_each_call;
  const unsigned int room = *count;
  *count = listed.count;
  if (listed.count > room) return 7;
  auto* const entries = static_cast<uint8_t*>(processes);
  for (unsigned int i = 0; i < listed.count; ++i) {
    uint8_t* const entry = entries + i * listed.entry_bytes;
    std::memset(entry, 0, listed.entry_bytes);
    const unsigned int pid = listed.first_pid + i;
    const unsigned long long bytes = 1000 + i;
    const unsigned int instances[2] = {kInstance, kInstance};
    std::memcpy(entry, &pid, sizeof pid);
    std::memcpy(entry + 8, &bytes, sizeof bytes);
    std::memcpy(entry + 16, instances, sizeof instances);
  }
  return 0;
}

int refuse_processes(void*, unsigned int*, void*) { return 3; }

std::optional<uint64_t> bytes_of(unsigned int pid, const Listed& what) {
  listed = what;
  return cuda::nvml_process_bytes(&list_processes, &listed, pid);
}

void processes_are_found() {
  for (const size_t entry_bytes : {size_t{24}, size_t{32}}) {
    const std::string what = "entries of " + std::to_string(entry_bytes) + " bytes: ";
    for (const unsigned int count : {1u, 3u, 64u, 65u, 200u}) {
      const Listed processes{5000, count, entry_bytes};
      for (const unsigned int i : {0u, count / 2, count - 1}) {
        check(bytes_of(5000 + i, processes) == 1000 + i, what + "process " + std::to_string(i) + " of " + std::to_string(count));
        check(listed.calls == (count <= 64 ? 1 : 2), what + "the library is asked " + std::to_string(listed.calls) + " times");
      }
      check(!bytes_of(77, processes).has_value(), what + "a process that is not listed");
    }
    check(!bytes_of(77, {5000, 0, entry_bytes}).has_value(), what + "no process");
  }
  // These are at the place where a wide entry would begin.
  check(!bytes_of(kInstance, {.first_pid = 6, .count = 4}).has_value(), "an instance is taken for a process");
  check(!bytes_of(1001, {.first_pid = 6, .count = 4}).has_value(), "a size is taken for a process");
  check(bytes_of(64 + 70, {.first_pid = 64, .count = 70, .more_each_call = 3}) == 1070, "processes that begin between the calls");
  check(!bytes_of(1, {.first_pid = 1, .count = 65, .more_each_call = 100}).has_value(), "a list that always grows");
  check(!cuda::nvml_process_bytes(&refuse_processes, &listed, 1).has_value(), "a library that refuses");
}

void the_newest_function_is_asked() {
  const auto find_device = [](const char* bus_id, void** device) {
    *device = &listed;
    return std::strcmp(bus_id, "0000:01:00.0") == 0 ? 0 : 6;
  };
  cuda::NvmlApi api;
  check(!cuda::NvmlDevice("0000:01:00.0", api).used_bytes().has_value(), "a missing library tells something");
  api.device_by_bus_id = find_device;
  check(!cuda::NvmlDevice("0000:01:00.0", api).used_bytes().has_value(), "a library without the function tells something");
  api.running_processes_v2 = &list_processes;
  listed = {static_cast<unsigned int>(getpid()), 1};
  check(cuda::NvmlDevice("0000:01:00.0", api).used_bytes() == 1000u, "version 2 is not asked where there is no version 3");
  api.running_processes_v3 = &refuse_processes;
  check(!cuda::NvmlDevice("0000:01:00.0", api).used_bytes().has_value(), "version 3 is not asked");
  check(!cuda::NvmlDevice("0000:02:00.0", api).used_bytes().has_value(), "an unknown device tells something");
  check(!cuda::NvmlDevice().used_bytes().has_value(), "no device tells something");
}

void figures_are_kept() {
  using Clock = cuda::RecentFigure::Clock;
  cuda::RecentFigure figure;
  int asked = 0;
  const auto ask = [&]() -> std::optional<uint64_t> {
    asked++;
    return asked == 2 ? std::nullopt : std::optional<uint64_t>(asked);
  };
  const Clock::time_point begin{};
  const auto oldest = cuda::RecentFigure::kOldest;
  check(figure.get(begin, ask) == 1u && asked == 1, "a figure is asked for at first");
  check(figure.get(begin + oldest - Clock::duration(1), ask) == 1u && asked == 1, "and kept");
  check(!figure.get(begin + oldest, ask).has_value() && asked == 2, "until it is old");
  check(!figure.get(begin + oldest, ask).has_value() && asked == 2, "what could not be told is not asked again at once");
  check(figure.get(begin + 2 * oldest, ask) == 3u && asked == 3, "but later");
}

}  // namespace

void add_cuda_host_cases(std::vector<Case>& cases) {
  cases.push_back({"CUDA host: code serves devices", code_serves_devices});
  cases.push_back({"CUDA host: errors are ours", errors_are_ours});
  cases.push_back({"CUDA host: processes of the management library", processes_are_found});
  cases.push_back({"CUDA host: versions of the management library", the_newest_function_is_asked});
  cases.push_back({"CUDA host: figures are kept for a while", figures_are_kept});
}

}  // namespace odmoe::test
