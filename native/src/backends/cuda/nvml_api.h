// NVIDIA's management library: the driver's figures about a process's device memory. It is found at run time, because few machines
// have its header.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace odmoe::cuda {

// Functions with the types of nvml.h. Any may be null: the driver is missing, or lacks the function.
struct NvmlApi {
  using Device = void*;
  using RunningProcesses = int (*)(Device device, unsigned int* count, void* processes);

  int (*initialize)() = nullptr;
  int (*device_by_bus_id)(const char* bus_id, Device* device) = nullptr;
  RunningProcesses running_processes_v3 = nullptr;
  RunningProcesses running_processes_v2 = nullptr;
};

// Device memory of a process, as `running` lists it; none if the process is not in the list.
std::optional<uint64_t> nvml_process_bytes(NvmlApi::RunningProcesses running, NvmlApi::Device device, unsigned int process);

class NvmlDevice {
 public:
  NvmlDevice() = default;
  // bus_id: in the form of cudaDeviceGetPCIBusId.
  explicit NvmlDevice(const std::string& bus_id);
  NvmlDevice(const std::string& bus_id, const NvmlApi& api);

  // Device memory of this process, including its context. None where the library is missing, does not count it (integrated
  // devices), or knows the process by another number (containers).
  std::optional<uint64_t> used_bytes() const;

 private:
  NvmlApi::Device device_ = nullptr;
  NvmlApi::RunningProcesses running_ = nullptr;  // null: no figures are available
};

}  // namespace odmoe::cuda
