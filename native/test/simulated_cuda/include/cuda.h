// Stand-in for NVIDIA's header of the same name: the driver's types and the functions that map device memory.
#pragma once

#include <cstddef>

#include "driver_types.h"

#define CUDA_VERSION 12000
#define CUDAAPI

#define ODMOE_SIMULATED_DRIVER_ERRORS(X)                                                                       \
  X(CUDA_SUCCESS, 0, "no error")                                                                               \
  X(CUDA_ERROR_INVALID_VALUE, 1, "invalid argument")                                                           \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2, "out of memory")                                                              \
  X(CUDA_ERROR_NOT_INITIALIZED, 3, "initialization error")                                                     \
  X(CUDA_ERROR_DEINITIALIZED, 4, "driver shutting down")                                                       \
  X(CUDA_ERROR_NO_DEVICE, 100, "no CUDA-capable device is detected")                                           \
  X(CUDA_ERROR_INVALID_DEVICE, 101, "invalid device ordinal")                                                  \
  X(CUDA_ERROR_INVALID_CONTEXT, 201, "invalid device context")                                                 \
  X(CUDA_ERROR_ALREADY_MAPPED, 208, "resource already mapped")                                                 \
  X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209, "no kernel image is available for execution on the device")             \
  X(CUDA_ERROR_NOT_MAPPED, 211, "resource not mapped")                                                         \
  X(CUDA_ERROR_ECC_UNCORRECTABLE, 214, "uncorrectable ECC error encountered")                                  \
  X(CUDA_ERROR_INVALID_HANDLE, 400, "invalid resource handle")                                                 \
  X(CUDA_ERROR_NOT_READY, 600, "device not ready")                                                             \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700, "an illegal memory access was encountered")                               \
  X(CUDA_ERROR_LAUNCH_FAILED, 719, "unspecified launch failure")                                               \
  X(CUDA_ERROR_NOT_PERMITTED, 800, "operation not permitted")                                                  \
  X(CUDA_ERROR_NOT_SUPPORTED, 801, "operation not supported")                                                  \
  X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803, "system has unsupported display driver / cuda driver combination") \
  X(CUDA_ERROR_UNKNOWN, 999, "unknown error")

#define ODMOE_SIMULATED_DRIVER_ENUMERATOR(name, value, text) name = value,
typedef enum cudaError_enum { ODMOE_SIMULATED_DRIVER_ERRORS(ODMOE_SIMULATED_DRIVER_ENUMERATOR) } CUresult;
#undef ODMOE_SIMULATED_DRIVER_ENUMERATOR

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st* CUcontext;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;

typedef enum CUdevice_attribute_enum {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED = 102,
  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102
} CUdevice_attribute;

typedef enum CUmemAllocationHandleType_enum {
  CU_MEM_HANDLE_TYPE_NONE = 0x0,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 0x1
} CUmemAllocationHandleType;
typedef enum CUmemAccess_flags_enum {
  CU_MEM_ACCESS_FLAGS_PROT_NONE = 0x0,
  CU_MEM_ACCESS_FLAGS_PROT_READ = 0x1,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 0x3
} CUmemAccess_flags;
typedef enum CUmemLocationType_enum { CU_MEM_LOCATION_TYPE_INVALID = 0x0, CU_MEM_LOCATION_TYPE_DEVICE = 0x1 } CUmemLocationType;
typedef enum CUmemAllocationType_enum {
  CU_MEM_ALLOCATION_TYPE_INVALID = 0x0,
  CU_MEM_ALLOCATION_TYPE_PINNED = 0x1
} CUmemAllocationType;
typedef enum CUmemAllocationGranularity_flags_enum {
  CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0x0,
  CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 0x1
} CUmemAllocationGranularity_flags;

typedef struct CUmemLocation_st {
  CUmemLocationType type;
  int id;
} CUmemLocation;
typedef struct CUmemAllocationProp_st {
  CUmemAllocationType type;
  CUmemAllocationHandleType requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType;
    unsigned char gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
} CUmemAllocationProp;
typedef struct CUmemAccessDesc_st {
  CUmemLocation location;
  CUmemAccess_flags flags;
} CUmemAccessDesc;

#pragma GCC visibility push(default)
extern "C" {
CUresult cuInit(unsigned int flags);
CUresult cuDriverGetVersion(int* version);
CUresult cuDeviceGetCount(int* count);
CUresult cuDeviceGet(CUdevice* device, int ordinal);
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device);
CUresult cuGetErrorString(CUresult error, const char** text);
CUresult cuGetErrorName(CUresult error, const char** text);
CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option);
CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr address, size_t size);
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties,
                     unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr address, size_t size);
CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* descriptions, size_t count);
}
#pragma GCC visibility pop
