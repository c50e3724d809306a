#include "device_context.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "cuda_error.h"
#include "driver_api.h"

namespace odmoe::cuda {
namespace {

// "0000:01:00.0"
constexpr int kBusIdBytes = 32;
// Estimates for drivers that report nothing about this process. On a card, the memory in use bounds the context's size, but it may
// belong to other programs. On an integrated device it is the memory in use of the whole machine and says nothing.
constexpr uint64_t kMostContextBytes = uint64_t{512} << 20;
constexpr uint64_t kIntegratedContextBytes = uint64_t{128} << 20;

struct DeviceUse {
  int users = 0;
  // The first user measures it: later users would also count the memory that the others have allocated.
  std::optional<uint64_t> context_bytes;
};

// The uses of each device in this process. When the last user ends, so does the driver's context, so that a node that no longer
// uses a device leaves no memory there.
std::mutex uses_mutex;
std::map<int, DeviceUse> uses;

void begin_use(int device) {
  const std::lock_guard lock(uses_mutex);
  uses[device].users++;
}

void end_use(int device) noexcept {
  const std::lock_guard lock(uses_mutex);
  if (--uses[device].users > 0) return;
  uses.erase(device);
  cudaSetDevice(device);
  cudaDeviceReset();
}

}  // namespace

DeviceContext::DeviceContext(int device) : device_(device) {
  begin_use(device);
  try {
    open();
  } catch (...) {
    close();
    throw;
  }
}

DeviceContext::~DeviceContext() { close(); }

void DeviceContext::close() noexcept {
  cudaSetDevice(device_);
  if (compute_stream_ != nullptr) cudaStreamDestroy(compute_stream_);
  end_use(device_);
}

void DeviceContext::open() {
  // A decode step waits for the router in every layer, so the executor polls; it yields, because loaders and the network share the
  // same few processors. Loaders wait by events that let them sleep. Every user of the device in this process sets the same flags;
  // they also take effect on a device that is already initialised.
  check(cudaSetDevice(device_), "choosing the device");
  if (cudaSetDeviceFlags(cudaDeviceScheduleYield | cudaDeviceMapHost) != cudaSuccess) cudaGetLastError();
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device_), "reading the device's properties");
  name_ = properties.name;
  traits_.multiprocessors = properties.multiProcessorCount;
  traits_.capability = properties.major * 10 + properties.minor;
  traits_.integrated = properties.integrated != 0;
  int pageable = 0;
  check(cudaDeviceGetAttribute(&pageable, cudaDevAttrPageableMemoryAccess, device_), "reading the device's properties");
  reads_pageable_memory_ = pageable != 0;
  std::array<char, kBusIdBytes> bus_id{};
  if (cudaDeviceGetPCIBusId(bus_id.data(), kBusIdBytes, device_) == cudaSuccess) nvml_ = NvmlDevice(bus_id.data());
  cudaGetLastError();
  make_stream();
  load_kernels();
  mapping_granularity_ = cuda::mapping_granularity(device_);
  context_bytes_ = shared_context_bytes();
}

void DeviceContext::make_stream() {
  int highest_priority = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest_priority_, &highest_priority), "reading the device's properties");
  check(cudaStreamCreateWithPriority(&compute_stream_, cudaStreamNonBlocking, highest_priority), "creating a stream");
}

// The library asks for all of its code to be loaded at once (cuda_library.cc), and the first kernel causes that. This one adds to
// one float, which also shows that the library has code for the device.
void DeviceContext::load_kernels() {
  void* floats = nullptr;
  check(cudaMalloc(&floats, 2 * sizeof(float)), "allocating device memory");
  try {
    check(cudaMemsetAsync(floats, 0, 2 * sizeof(float), compute_stream_), "clearing device memory");
    check(launch_add(static_cast<float*>(floats), static_cast<float*>(floats) + 1, 1, 1.0f, compute_stream_),
          "loading the kernels");
    check(cudaStreamSynchronize(compute_stream_), "loading the kernels");
  } catch (...) {
    cudaStreamSynchronize(compute_stream_);
    cudaFree(floats);
    throw;
  }
  check(cudaFree(floats), "releasing device memory");
}

uint64_t DeviceContext::shared_context_bytes() const {
  const std::lock_guard lock(uses_mutex);
  std::optional<uint64_t>& bytes = uses[device_].context_bytes;
  if (!bytes.has_value()) bytes = measured_context_bytes();
  return *bytes;
}

uint64_t DeviceContext::measured_context_bytes() const {
  const std::optional<uint64_t> told = driver_used_bytes();
  if (told.has_value()) return *told;
  if (traits_.integrated) return kIntegratedContextBytes;
  size_t free = 0;
  size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "reading the device's free memory");
  return std::min<uint64_t>(total - free, kMostContextBytes);
}

void DeviceContext::enter() const { check(cudaSetDevice(device_), "choosing the device"); }

}  // namespace odmoe::cuda
