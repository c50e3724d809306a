// NVIDIA's management library: what the driver says of a process's device memory. Found at run time; its header is on few machines.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace odmoe::cuda {

// As nvml.h has them. Any may be null: a driver that is missing, or lacks it.
struct NvmlApi {
  using Device = void*;
  using RunningProcesses = int (*)(Device device, unsigned int* count, void* processes);

  int (*initialize)() = nullptr;
  int (*device_by_bus_id)(const char* bus_id, Device* device) = nullptr;
  RunningProcesses running_processes_v3 = nullptr;
  RunningProcesses running_processes_v2 = nullptr;
};

// A process among those that `running` lists with what they take of the device; none where it does not list it.
std::optional<uint64_t> nvml_process_bytes(NvmlApi::RunningProcesses running, NvmlApi::Device device, unsigned int process);

class NvmlDevice {
 public:
  NvmlDevice() = default;
  // bus_id: as cudaDeviceGetPCIBusId names it.
  explicit NvmlDevice(const std::string& bus_id);
  NvmlDevice(const std::string& bus_id, const NvmlApi& api);

  // What this process takes of the device, context and all. None where the library is missing, keeps no such account (integrated
  // devices), or knows the process by another number (containers).
  std::optional<uint64_t> used_bytes() const;

 private:
  NvmlApi::Device device_ = nullptr;
  NvmlApi::RunningProcesses running_ = nullptr;  // null: nothing can be asked
};

}  // namespace odmoe::cuda
