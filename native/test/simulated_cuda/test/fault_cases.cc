// Kinds of devices and faults, as the environment sets them.
#include <cuda.h>
#include <unistd.h>

#include <vector>

#include "cases.h"
#include "kernels.h"

extern "C" {
int nvmlInit_v2();
int nvmlShutdown();
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device);
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, void* infos);
int nvmlSystemGetDriverVersion(char* version, unsigned length);
}

int no_device() {
  Checks check;
  int count = 7;
  check(cudaGetDeviceCount(&count) == cudaErrorNoDevice && count == 0, "no device is counted");
  check(cudaSetDevice(0) == cudaErrorNoDevice, "none can be set");
  void* memory = nullptr;
  check(cudaMalloc(&memory, 100) == cudaErrorNoDevice, "none has memory");
  check(cuInit(0) == CUDA_ERROR_NO_DEVICE, "nor for the driver");
  return check.failures();
}

int old_driver() {
  Checks check;
  int count = 7, version = 0;
  check(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver, "counted");
  check(cudaSetDevice(0) == cudaErrorInsufficientDriver, "set");
  check(cudaDriverGetVersion(&version) == cudaSuccess && version == 11040, "the version is told");
  return check.failures();
}

int device_kind() {
  Checks check;
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0) == cudaSuccess && properties.integrated == 1, "integrated");
  check(properties.major == 8 && properties.minor == 7, "capability");
  cudaFree(nullptr);
  int mapped = 7;
  const CUdevice_attribute attribute = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
  check(cuDeviceGetAttribute(&mapped, attribute, 0) == CUDA_SUCCESS && mapped == 0, "no mapping");
  CUdeviceptr address = 0;
  check(cuMemAddressReserve(&address, 2 << 20, 0, 0, 0) == CUDA_ERROR_NOT_SUPPORTED, "nor addresses");
  check(cudaSetDevice(1) == cudaErrorInvalidDevice, "one device");
  return check.failures();
}

int lost_device() {
  Checks check;
  const cudaStream_t stream = new_stream();
  float* memory = nullptr;
  cudaMalloc(&memory, 256);
  for (int i = 0; i < 2; ++i) {
    check(launch_add_one(memory, memory, 64, stream) == cudaSuccess, "launched");
    check(cudaStreamSynchronize(stream) == cudaSuccess, "still there");
  }
  const cudaError_t launched = launch_add_one(memory, memory, 64, stream);
  check(launched == cudaSuccess || launched == cudaErrorLaunchFailure, "launched");
  check(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure, "lost");
  check(cudaMalloc(&memory, 256) == cudaErrorLaunchFailure, "and stays lost");
  check(cudaDeviceSynchronize() == cudaErrorLaunchFailure, "for every call");
  check(cudaGetLastError() == cudaErrorLaunchFailure, "the last error says so");
  return check.failures();
}

int gone_device() {
  Checks check;
  const cudaStream_t stream = new_stream();
  float* memory = nullptr;
  cudaMalloc(&memory, 256);
  launch_add_one(memory, memory, 64, stream);
  check(cudaStreamSynchronize(stream) == cudaErrorNoDevice, "gone");
  check(cudaFree(memory) == cudaErrorNoDevice, "for every call");
  return check.failures();
}

int no_image() {
  Checks check;
  float* memory = nullptr;
  check(cudaMalloc(&memory, 256) == cudaSuccess, "memory there is");
  check(launch_add_one(memory, memory, 64, new_stream()) == cudaErrorNoKernelImageForDevice, "no kernel");
  return check.failures();
}

int out_of_memory() {
  Checks check;
  float* memory = nullptr;
  check(cudaMalloc(&memory, 256) == cudaSuccess, "the first");
  check(cudaMalloc(&memory, 256) == cudaErrorMemoryAllocation, "the second");
  check(cudaMalloc(&memory, 256) == cudaSuccess, "the third");
  return check.failures();
}

int management_library() {
  Checks check;
  struct {
    unsigned pid;
    unsigned long long used;
    unsigned instances[2];
  } process = {};
  void* device = nullptr;
  check(nvmlDeviceGetHandleByPciBusId_v2("0000:01:00.0", &device) == 1, "not opened");
  check(nvmlInit_v2() == 0, "opened");
  char bus[32], version[80];
  float* memory = nullptr;
  cudaMalloc(&memory, 4096);
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, 0) == cudaSuccess, "its place");
  check(nvmlDeviceGetHandleByPciBusId_v2(bus, &device) == 0, "found there");
  unsigned count = 0;
  check(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, nullptr) == 7 && count == 1, "room for one is needed");
  check(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, &process) == 0 && count == 1, "one process");
  check(process.pid == static_cast<unsigned>(getpid()), "this one");
  check(process.used == (64ull << 20) + 4096, "its memory, context and all");
  check(nvmlSystemGetDriverVersion(version, sizeof version) == 0, "version");
  check(nvmlShutdown() == 0, "closed");
  return check.failures();
}
