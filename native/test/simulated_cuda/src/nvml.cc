// The part of NVIDIA's management library that reports a process's device memory.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "runtime_call.h"

using namespace odmoe_simulated;

namespace {

constexpr int kSuccess = 0, kUninitialized = 1, kInvalidArgument = 2, kNotSupported = 3;
constexpr int kNotFound = 6, kInsufficientSize = 7;

struct ProcessInfo {  // nvmlProcessInfo_t, second version
  unsigned int pid;
  unsigned long long used_gpu_memory;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};

int opened = 0;

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int nvmlInit_v2() {
  const Lock lock(Machine::get().mutex);
  ++opened;
  return kSuccess;
}

int nvmlShutdown() {
  const Lock lock(Machine::get().mutex);
  if (opened == 0) return kUninitialized;
  --opened;
  return kSuccess;
}

const char* nvmlErrorString(int result) { return result == kSuccess ? "Success" : "Error"; }

int nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  if (opened == 0) return kUninitialized;
  if (version == nullptr) return kInvalidArgument;
  const int number = configuration().driver_version;
  return std::snprintf(version, length, "simulated-%d.%d", number / 1000, number % 1000 / 10) < static_cast<int>(length)
             ? kSuccess
             : kInsufficientSize;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  if (opened == 0) return kUninitialized;
  unsigned number = 0;
  if (bus == nullptr || device == nullptr || std::sscanf(bus, "%*x:%x:", &number) != 1) return kInvalidArgument;
  if (number == 0 || static_cast<int>(number) > configuration().devices) return kNotFound;
  *device = reinterpret_cast<void*>(static_cast<uintptr_t>(number));
  return kSuccess;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned int* count, void* infos) {
  Machine& machine = Machine::get();
  const Lock lock(machine.mutex);
  if (opened == 0) return kUninitialized;
  if (count == nullptr || device == nullptr) return kInvalidArgument;
  if (configuration().integrated) return kNotSupported;
  const int index = static_cast<int>(reinterpret_cast<uintptr_t>(device)) - 1;
  const size_t used = machine.used(index);
  const unsigned int room = *count;
  *count = used != 0 ? 1 : 0;
  if (*count == 0) return kSuccess;
  if (room < 1 || infos == nullptr) return kInsufficientSize;
  const ProcessInfo self{static_cast<unsigned int>(getpid()), used, 0xffffffffu, 0xffffffffu};
  std::memcpy(infos, &self, sizeof self);
  return kSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
