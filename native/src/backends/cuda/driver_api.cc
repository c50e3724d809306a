#include "driver_api.h"

#include <dlfcn.h>

#include <optional>

#ifndef ODMOE_CUDA_DRIVER_LIBRARY
#define ODMOE_CUDA_DRIVER_LIBRARY "libcuda.so.1"
#endif

namespace odmoe::cuda {
namespace {

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

std::optional<DriverApi> load() {
  // Never closed: the runtime holds the driver for as long as the process lives.
  void* const library = dlopen(ODMOE_CUDA_DRIVER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  DriverApi api;
  const bool found = find(library, "cuDeviceGet", api.device_get) &&
                     find(library, "cuDeviceGetAttribute", api.device_get_attribute) &&
                     find(library, "cuMemGetAllocationGranularity", api.get_allocation_granularity) &&
                     find(library, "cuMemAddressReserve", api.address_reserve) &&
                     find(library, "cuMemAddressFree", api.address_free) && find(library, "cuMemCreate", api.create) &&
                     find(library, "cuMemRelease", api.release) && find(library, "cuMemMap", api.map) &&
                     find(library, "cuMemUnmap", api.unmap) && find(library, "cuMemSetAccess", api.set_access);
  if (!found) return std::nullopt;
  return api;
}

}  // namespace

const DriverApi* driver_api() {
  static const std::optional<DriverApi> api = load();
  return api.has_value() ? &*api : nullptr;
}

bool maps_memory(int device) {
  const DriverApi* const api = driver_api();
  CUdevice handle = 0;
  int supported = 0;
  return api != nullptr && api->device_get(&handle, device) == CUDA_SUCCESS &&
         api->device_get_attribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, handle) == CUDA_SUCCESS &&
         supported != 0;
}

uint64_t mapping_granularity(int device) {
  if (!maps_memory(device)) return 0;
  const DriverApi* const api = driver_api();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  size_t granularity = 0;
  if (api->get_allocation_granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS) return 0;
  return granularity;
}

}  // namespace odmoe::cuda
