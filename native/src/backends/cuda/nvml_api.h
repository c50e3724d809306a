// NVIDIA's management library: what the driver says of a process's device memory. Found at run time; its header is on few machines.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace odmoe::cuda {

// What this process takes of the device, context and all. `bus_id`: as cudaDeviceGetPCIBusId names it. None where the library is
// missing, keeps no such account (integrated devices), or knows the process by another number (containers).
std::optional<uint64_t> nvml_used_bytes(const std::string& bus_id);

}  // namespace odmoe::cuda
