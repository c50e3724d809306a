// The runtime's functions about errors and devices.
#include <cstdio>
#include <cstring>

#include "runtime_call.h"

using namespace odmoe_simulated;

namespace odmoe_simulated {

static thread_local cudaError_t last_error = cudaSuccess;

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace odmoe_simulated

extern "C" {

#define ODMOE_CASE(name, value, text) \
  case name: return #name;
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) { ODMOE_SIMULATED_CUDA_ERRORS(ODMOE_CASE) }
  return "unrecognized error code";
}
#undef ODMOE_CASE
#define ODMOE_CASE(name, value, text) \
  case name: return text;
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) { ODMOE_SIMULATED_CUDA_ERRORS(ODMOE_CASE) }
  return "unrecognized error code";
}
#undef ODMOE_CASE

cudaError_t cudaPeekAtLastError(void) { return last_error; }
cudaError_t cudaGetLastError(void) {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (configuration().driver_version < 11080) return remember(cudaErrorInsufficientDriver);
  if (configuration().devices == 0) return remember(cudaErrorNoDevice);
  *count = configuration().devices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= configuration().devices) {
    return remember(configuration().devices == 0 ? cudaErrorNoDevice : cudaErrorInvalidDevice);
  }
  const int before = current_device();
  current_device() = device;  // from CUDA 12 on this also makes the context
  const cudaError_t error = call([](Machine&, Lock&) { return cudaSuccess; });
  if (error != cudaSuccess) current_device() = before;
  return error;
}

cudaError_t cudaGetDevice(int* device) {
  return call_without_context([&](Machine&, Lock&) {
    *device = current_device();
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* to, int device) {
  return call_without_context([&](Machine&, Lock&) {
    const Configuration& from = configuration();
    if (device < 0 || device >= from.devices) return cudaErrorInvalidDevice;
    std::memset(to, 0, sizeof *to);
    std::snprintf(to->name, sizeof to->name, "Simulated CUDA device %d", device);
    std::memcpy(to->uuid.bytes, "odmoe simulated", 15);
    to->uuid.bytes[15] = static_cast<char>(device);
    to->totalGlobalMem = from.memory_bytes;
    to->sharedMemPerBlock = 48 << 10;
    to->sharedMemPerBlockOptin = 99 << 10;
    to->sharedMemPerMultiprocessor = 100 << 10;
    to->regsPerBlock = to->regsPerMultiprocessor = 65536;
    to->warpSize = 32;
    to->maxThreadsPerBlock = to->maxThreadsDim[0] = to->maxThreadsDim[1] = 1024;
    to->maxThreadsDim[2] = 64;
    to->maxGridSize[0] = 2147483647;
    to->maxGridSize[1] = to->maxGridSize[2] = 65535;
    to->totalConstMem = 64 << 10;
    to->major = from.major;
    to->minor = from.minor;
    to->multiProcessorCount = 4;
    to->integrated = from.integrated ? 1 : 0;
    to->canMapHostMemory = to->concurrentKernels = to->unifiedAddressing = to->streamPrioritiesSupported = 1;
    to->asyncEngineCount = 2;
    to->pciBusID = device + 1;
    to->memoryBusWidth = 384;
    to->l2CacheSize = 4 << 20;
    to->maxThreadsPerMultiProcessor = 1536;
    to->maxBlocksPerMultiProcessor = 16;
    to->managedMemory = to->canUseHostPointerForRegisteredMem = 1;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp all;
  if (const cudaError_t error = cudaGetDeviceProperties(&all, device); error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX: *value = all.maxThreadsPerBlock; break;
    case cudaDevAttrMaxGridDimX: *value = all.maxGridSize[0]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(all.sharedMemPerBlock); break;
    case cudaDevAttrWarpSize: *value = all.warpSize; break;
    case cudaDevAttrMultiProcessorCount: *value = all.multiProcessorCount; break;
    case cudaDevAttrIntegrated: *value = all.integrated; break;
    case cudaDevAttrCanMapHostMemory: *value = all.canMapHostMemory; break;
    case cudaDevAttrConcurrentKernels: *value = all.concurrentKernels; break;
    case cudaDevAttrPciBusId: *value = all.pciBusID; break;
    case cudaDevAttrPciDeviceId: *value = all.pciDeviceID; break;
    case cudaDevAttrPciDomainId: *value = all.pciDomainID; break;
    case cudaDevAttrClockRate: *value = 1700000; break;
    case cudaDevAttrMemoryClockRate: *value = 9750000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = all.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = all.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = all.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrAsyncEngineCount: *value = all.asyncEngineCount; break;
    case cudaDevAttrUnifiedAddressing: *value = all.unifiedAddressing; break;
    case cudaDevAttrComputeCapabilityMajor: *value = all.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = all.minor; break;
    case cudaDevAttrStreamPrioritiesSupported: *value = all.streamPrioritiesSupported; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = static_cast<int>(all.sharedMemPerMultiprocessor); break;
    case cudaDevAttrManagedMemory: *value = all.managedMemory; break;
    case cudaDevAttrPageableMemoryAccess: *value = all.pageableMemoryAccess; break;
    case cudaDevAttrConcurrentManagedAccess: *value = all.concurrentManagedAccess; break;
    case cudaDevAttrCanUseHostPointerForRegisteredMem: *value = all.canUseHostPointerForRegisteredMem; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(all.sharedMemPerBlockOptin); break;
    default: return remember(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return call_without_context([&](Machine&, Lock&) {
    if (device < 0 || device >= configuration().devices) return cudaErrorInvalidDevice;
    if (text == nullptr || length < 13) return cudaErrorInvalidValue;
    std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", (device + 1) & 0xff);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return call_without_context([&](Machine&, Lock&) {
    unsigned bus = 0;
    if (text == nullptr || std::sscanf(text, "%*x:%x:", &bus) != 1) return cudaErrorInvalidValue;
    if (bus == 0 || static_cast<int>(bus) > configuration().devices) return cudaErrorInvalidDevice;
    *device = static_cast<int>(bus) - 1;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = configuration().driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned int) {
  return call_without_context([](Machine&, Lock&) { return cudaSuccess; });
}
cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
  return call([&](Machine&, Lock&) {
    *flags = cudaDeviceScheduleBlockingSync;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize(void) {
  return call([](Machine& machine, Lock& lock) {
    machine.wait_idle(lock, current_device());
    return machine.usable();
  });
}

cudaError_t cudaDeviceReset(void) { return cudaDeviceSynchronize(); }

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute attribute, int value) {
  return call([&](Machine&, Lock&) {
    const bool fits = value >= 0 && value <= (99 << 10);
    return attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && !fits ? cudaErrorInvalidValue : cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int block_size, size_t) {
  return call([&](Machine&, Lock&) {
    if (block_size < 1 || block_size > 1024) return cudaErrorInvalidValue;
    *blocks = std::min(16, 1536 / block_size);
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return call([&](Machine&, Lock&) {
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (configuration().no_image) return cudaErrorNoKernelImageForDevice;
    *attributes = cudaFuncAttributes{};
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 64;
    attributes->ptxVersion = attributes->binaryVersion = configuration().major * 10 + configuration().minor;
    return cudaSuccess;
  });
}

}  // extern "C"
