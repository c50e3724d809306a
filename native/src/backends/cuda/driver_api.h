// The driver's functions that map device memory. They are found at run time, so that the library can be opened without a driver, or
// with an old one.
#pragma once
#include <cuda.h>

#include <cstddef>

#include "cuda_error.h"

namespace odmoe::cuda {

struct DriverApi {
  decltype(&cuDeviceGet) device_get = nullptr;
  decltype(&cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&cuMemGetAllocationGranularity) get_allocation_granularity = nullptr;
  decltype(&cuMemAddressReserve) address_reserve = nullptr;
  decltype(&cuMemAddressFree) address_free = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
};

// Null where the driver is missing, or lacks one of these functions.
const DriverApi* driver_api();

// True if memory can be mapped on the device. Needs no context.
bool maps_memory(int device);
// The unit of mapping, once the device is in use. 0: it cannot map memory.
uint64_t mapping_granularity(int device);

// The runtime numbers its errors as the driver does.
inline void check(CUresult result, const char* doing) { check(static_cast<cudaError_t>(result), doing); }

}  // namespace odmoe::cuda
