#include "nvml_api.h"

#include <dlfcn.h>
#include <unistd.h>

#include <vector>

#ifndef ODMOE_NVML_LIBRARY
#define ODMOE_NVML_LIBRARY "libnvidia-ml.so.1"
#endif

namespace odmoe::cuda {
namespace {

// As nvml.h has them.
using NvmlDevice = void*;
struct NvmlProcess {  // nvmlProcessInfo_t of the functions' version 3
  unsigned int pid;
  unsigned long long used_bytes;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};
constexpr int kNvmlSuccess = 0;
constexpr int kNvmlInsufficientSize = 7;
constexpr unsigned long long kNvmlNotAvailable = ~0ull;
// Processes that begin between the two calls are allowed for.
constexpr unsigned int kMoreProcesses = 16;

class NvmlApi {
 public:
  NvmlApi() {
    // Never closed, as nothing is gained by it.
    void* const library = dlopen(ODMOE_NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    int (*initialize)() = nullptr;
    find(library, "nvmlInit_v2", initialize);
    find(library, "nvmlDeviceGetHandleByPciBusId_v2", device_by_bus_id_);
    find(library, "nvmlDeviceGetComputeRunningProcesses_v3", running_processes_);
    usable_ = initialize != nullptr && device_by_bus_id_ != nullptr && running_processes_ != nullptr &&
              initialize() == kNvmlSuccess;
  }

  std::optional<uint64_t> used_bytes(const std::string& bus_id) const {
    NvmlDevice device = nullptr;
    if (!usable_ || device_by_bus_id_(bus_id.c_str(), &device) != kNvmlSuccess) return std::nullopt;
    unsigned int count = 0;
    const int asked = running_processes_(device, &count, nullptr);
    if (asked != kNvmlSuccess && asked != kNvmlInsufficientSize) return std::nullopt;
    std::vector<NvmlProcess> processes(count + kMoreProcesses);
    count = static_cast<unsigned int>(processes.size());
    if (running_processes_(device, &count, processes.data()) != kNvmlSuccess) return std::nullopt;
    const auto own = static_cast<unsigned int>(getpid());
    for (unsigned int i = 0; i < count; ++i) {
      if (processes[i].pid == own && processes[i].used_bytes != kNvmlNotAvailable) return processes[i].used_bytes;
    }
    return std::nullopt;
  }

 private:
  template <class Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
  }

  int (*device_by_bus_id_)(const char*, NvmlDevice*) = nullptr;
  int (*running_processes_)(NvmlDevice, unsigned int*, NvmlProcess*) = nullptr;
  bool usable_ = false;
};

}  // namespace

std::optional<uint64_t> nvml_used_bytes(const std::string& bus_id) {
  static const NvmlApi api;
  return api.used_bytes(bus_id);
}

}  // namespace odmoe::cuda
