#include "nvml_api.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#ifndef ODMOE_NVML_LIBRARY
#define ODMOE_NVML_LIBRARY "libnvidia-ml.so.1"
#endif

namespace odmoe::cuda {
namespace {

constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
constexpr unsigned long long kNotAvailable = ~0ull;

// nvmlProcessInfo_t of both versions. Drivers 535.43 to 535.86 give entries with eight more bytes at the end, but call them version
// 3.
struct Process {
  unsigned int pid;
  unsigned long long used_bytes;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};
constexpr size_t kEntryBytes = sizeof(Process);
constexpr size_t kWideEntryBytes = kEntryBytes + 8;
static_assert(kEntryBytes == 24);
// Entries of the first request. If there are more, the next request leaves room for processes that begin meanwhile.
constexpr unsigned int kFirstEntries = 64;
constexpr unsigned int kMoreEntries = 16;
constexpr int kMostTries = 4;
// The byte in entries that the driver did not write.
constexpr uint8_t kUnwritten = 0xa5;

// The bytes that a driver has written: room for `count` entries of either kind.
struct Entries {
  const uint8_t* bytes = nullptr;
  unsigned int count = 0;

  std::optional<Process> of(unsigned int pid, size_t entry_bytes) const {
    for (unsigned int i = 0; i < count; ++i) {
      Process process;
      std::memcpy(&process, bytes + i * entry_bytes, sizeof process);
      if (process.pid == pid) return process;
    }
    return std::nullopt;
  }
  // `count` wide entries end behind `count` narrow ones.
  bool are_wide() const {
    const uint8_t* const end = bytes + count * kWideEntryBytes;
    return std::any_of(end - std::min<size_t>(count, 1) * 8, end, [](uint8_t byte) { return byte != kUnwritten; });
  }
};

std::optional<uint64_t> used_bytes(const Entries& entries, unsigned int pid) {
  std::optional<Process> process = entries.of(pid, kEntryBytes);
  if (!process.has_value() && entries.are_wide()) process = entries.of(pid, kWideEntryBytes);
  if (!process.has_value() || process->used_bytes == kNotAvailable) return std::nullopt;
  return process->used_bytes;
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

NvmlApi load() {
  NvmlApi api;
  // Never closed: that would gain nothing.
  void* const library = dlopen(ODMOE_NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return api;
  find(library, "nvmlInit_v2", api.initialize);
  find(library, "nvmlDeviceGetHandleByPciBusId_v2", api.device_by_bus_id);
  find(library, "nvmlDeviceGetComputeRunningProcesses_v3", api.running_processes_v3);
  find(library, "nvmlDeviceGetComputeRunningProcesses_v2", api.running_processes_v2);
  if (api.initialize == nullptr || api.initialize() != kSuccess) return {};
  return api;
}

const NvmlApi& loaded_api() {
  static const NvmlApi api = load();
  return api;
}

}  // namespace

std::optional<uint64_t> nvml_process_bytes(NvmlApi::RunningProcesses running, NvmlApi::Device device, unsigned int process) {
  alignas(Process) std::array<uint8_t, kFirstEntries * kWideEntryBytes> first;
  std::vector<uint8_t> more;
  uint8_t* bytes = first.data();
  unsigned int room = kFirstEntries;
  for (int i = 0; i < kMostTries; ++i) {
    std::memset(bytes, kUnwritten, room * kWideEntryBytes);
    unsigned int count = room;
    const int result = running(device, &count, bytes);
    if (result == kSuccess) return used_bytes({bytes, std::min(count, room)}, process);
    if (result != kInsufficientSize) return std::nullopt;
    room = std::max(count, room) + kMoreEntries;
    more.resize(room * kWideEntryBytes);
    bytes = more.data();
  }
  return std::nullopt;
}

NvmlDevice::NvmlDevice(const std::string& bus_id) : NvmlDevice(bus_id, loaded_api()) {}

NvmlDevice::NvmlDevice(const std::string& bus_id, const NvmlApi& api) {
  if (api.device_by_bus_id == nullptr || api.device_by_bus_id(bus_id.c_str(), &device_) != kSuccess) return;
  running_ = api.running_processes_v3 != nullptr ? api.running_processes_v3 : api.running_processes_v2;
}

std::optional<uint64_t> NvmlDevice::used_bytes() const {
  return running_ == nullptr ? std::nullopt : nvml_process_bytes(running_, device_, static_cast<unsigned int>(getpid()));
}

}  // namespace odmoe::cuda
