#include "device_list.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <sstream>

#include "code_names.h"
#include "cuda_error.h"
#include "driver_api.h"
#include "odmoe/error.h"

#ifndef ODMOE_CUDA_ARCHITECTURES
#error "ODMOE_CUDA_ARCHITECTURES comes from the build: \"sm_86 sm_87 sm_90 compute_90\""
#endif

namespace odmoe::cuda {
namespace {

std::vector<std::string> architectures() {
  std::vector<std::string> names;
  std::istringstream words(ODMOE_CUDA_ARCHITECTURES);
  for (std::string word; words >> word;) names.push_back(word);
  return names;
}

bool has_code_for(int capability) {
  const std::vector<std::string> names = architectures();
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return serves(name, capability); });
}

CudaDevice describe(int index) {
  CudaDevice device;
  device.index = index;
  cudaDeviceProp properties{};
  const cudaError_t error = cudaGetDeviceProperties(&properties, index);
  if (error != cudaSuccess) {
    device.reason = std::string("its properties cannot be read: ") + cudaGetErrorString(error);
    return device;
  }
  device.name = properties.name;
  device.capability = std::to_string(properties.major) + "." + std::to_string(properties.minor);
  device.memory_bytes = properties.totalGlobalMem;
  device.multiprocessors = properties.multiProcessorCount;
  device.integrated = properties.integrated != 0;
  device.paged_memory = maps_memory(index);
  const int capability = 10 * properties.major + properties.minor;
  device.usable = has_code_for(capability);
  if (!device.usable) {
    device.reason =
        "this build has code for " + std::string(ODMOE_CUDA_ARCHITECTURES) + ", the device is sm_" + std::to_string(capability);
  }
  return device;
}

std::string driver_reason(cudaError_t error, int driver, int runtime) {
  if (driver == 0) return "no NVIDIA driver is installed (libcuda.so.1 is not there)";
  if (error == cudaErrorInsufficientDriver) {
    return "the NVIDIA driver knows CUDA " + cuda_version_name(driver) + ", this build needs " + cuda_version_name(runtime) +
           "; install a newer driver, or build odmoe with an older CUDA toolkit";
  }
  return std::string("the driver shows no device: ") + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")";
}

struct Listing {
  CudaStatus status;
  bool driver_too_old = false;
};

Listing list_devices() {
  Listing listing;
  CudaStatus& status = listing.status;
  status.architectures = architectures();
  int driver = 0;
  int runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (cudaRuntimeGetVersion(&runtime) == cudaSuccess) status.runtime_version = cuda_version_name(runtime);
  if (driver > 0) status.driver_version = cuda_version_name(driver);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    status.reason = driver_reason(error == cudaSuccess ? cudaErrorNoDevice : error, driver, runtime);
    listing.driver_too_old = error == cudaErrorInsufficientDriver && driver > 0;
    cudaGetLastError();
    return listing;
  }
  for (int i = 0; i < count; ++i) {
    status.devices.push_back(describe(i));
    status.usable = status.usable || status.devices.back().usable;
  }
  if (!status.usable) status.reason = status.devices.front().name + ": " + status.devices.front().reason;
  return listing;
}

}  // namespace

CudaStatus device_status() { return list_devices().status; }

void require_usable_device(int device) {
  const auto [status, driver_too_old] = list_devices();
  if (driver_too_old) throw Error(ErrorCode::device_driver_too_old, status.reason);
  if (status.devices.empty()) throw Error(ErrorCode::device_unavailable, "CUDA cannot be used: " + status.reason);
  if (device < 0 || device >= static_cast<int>(status.devices.size())) {
    throw Error(ErrorCode::device_unavailable, "there is no CUDA device " + std::to_string(device) + ": the driver shows " +
                                                   std::to_string(status.devices.size()) + ", counted from 0");
  }
  const CudaDevice& found = status.devices[static_cast<size_t>(device)];
  if (found.usable) return;
  if (found.capability.empty()) {
    throw Error(ErrorCode::device_unavailable, "CUDA device " + std::to_string(device) + " cannot be used: " + found.reason);
  }
  throw Error(ErrorCode::device_architecture_unsupported, "CUDA device " + std::to_string(device) + " (" + found.name +
                                                              ") cannot be used: " + found.reason +
                                                              "; build odmoe on this machine, with a CUDA toolkit that knows it");
}

}  // namespace odmoe::cuda
