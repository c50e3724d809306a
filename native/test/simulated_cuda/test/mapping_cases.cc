// Memory that the driver's functions map at reserved addresses.
#include <cuda.h>

#include <thread>
#include <vector>

#include "cases.h"
#include "kernels.h"
#include "simulated_cuda.h"

namespace {

constexpr size_t kUnit = 2 << 20;
constexpr int kCount = 64;

CUmemAllocationProp on_device_zero() {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return properties;
}

CUmemAccessDesc read_and_write() {
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

CUmemGenericAllocationHandle create(size_t size) {
  const CUmemAllocationProp properties = on_device_zero();
  CUmemGenericAllocationHandle handle = 0;
  return cuMemCreate(&handle, size, &properties, 0) == CUDA_SUCCESS ? handle : 0;
}

float* at(CUdeviceptr address) { return reinterpret_cast<float*>(static_cast<uintptr_t>(address)); }

bool map(CUdeviceptr address, CUmemGenericAllocationHandle handle) {
  const CUmemAccessDesc access = read_and_write();
  if (cuMemMap(address, kUnit, 0, handle, 0) != CUDA_SUCCESS) return false;
  return cuMemSetAccess(address, kUnit, &access, 1) == CUDA_SUCCESS;
}

CUdeviceptr reserve(size_t size) {
  CUdeviceptr address = 0;
  return cuMemAddressReserve(&address, size, 0, 0, 0) == CUDA_SUCCESS ? address : 0;
}

}  // namespace

int mapping() {
  Checks check;
  const cudaStream_t stream = new_stream();
  check(cuInit(0) == CUDA_SUCCESS, "opened");
  const CUdeviceptr range = reserve(4 * kUnit);
  check(range != 0 && range % kUnit == 0, "reserved");
  size_t before = 0, after = 0, total = 0;
  cudaMemGetInfo(&before, &total);
  const CUmemGenericAllocationHandle one = create(kUnit), two = create(kUnit);
  cudaMemGetInfo(&after, &total);
  check(one != 0 && two != 0 && before - after == 2 * kUnit, "made and counted");
  const std::vector<float> ones(kCount, 1.0f);
  check(map(range + kUnit, one), "mapped");
  cudaMemcpyAsync(at(range + kUnit), ones.data(), kCount * 4, cudaMemcpyHostToDevice, stream);
  check(launch_add_one(at(range + kUnit), at(range + kUnit), kCount, stream) == cudaSuccess, "launched");
  cudaStreamSynchronize(stream);
  check(cuMemUnmap(range + kUnit, kUnit) == CUDA_SUCCESS, "unmapped");
  check(map(range + kUnit, two) && map(range + 3 * kUnit, one), "another under the address, the first elsewhere");
  std::vector<float> got(kCount);
  cudaMemcpyAsync(got.data(), at(range + 3 * kUnit), kCount * 4, cudaMemcpyDeviceToHost, stream);
  for (const float value : got) check(value == 2.0f, "memory keeps what was written");
  check(map(range + 2 * kUnit, create(kUnit)), "a neighbour");
  check(cudaMemcpyAsync(at(range + 2 * kUnit) - 8, ones.data(), kCount * 4, cudaMemcpyHostToDevice, stream) == cudaSuccess,
        "a copy across two neighbours");
  cudaStreamSynchronize(stream);
  check(cuMemUnmap(range + kUnit, 3 * kUnit) == CUDA_SUCCESS, "three unmapped at once");
  check(cuMemRelease(one) == CUDA_SUCCESS && cuMemRelease(two) == CUDA_SUCCESS, "released");
  check(cuMemAddressFree(range, 4 * kUnit) == CUDA_SUCCESS, "given back");
  cudaMemGetInfo(&after, &total);
  check(before - after == kUnit, "only the one not released is left");
  return check.failures();
}

int mapping_refusals() {
  Checks check;
  cudaFree(nullptr);
  const CUmemAccessDesc access = read_and_write();
  const CUmemAllocationProp properties = on_device_zero();
  CUmemGenericAllocationHandle handle = 0;
  size_t granularity = 0;
  check(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
            granularity == kUnit,
        "granularity");
  check(cuMemCreate(&handle, kUnit - 4096, &properties, 0) == CUDA_ERROR_INVALID_VALUE, "a part of a unit");
  check(cuMemCreate(&handle, size_t{4} << 30, &properties, 0) == CUDA_ERROR_OUT_OF_MEMORY, "more than there is");
  handle = create(kUnit);
  const CUdeviceptr range = reserve(2 * kUnit);
  check(cuMemMap(range + 4096, kUnit, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE, "an address between units");
  check(cuMemMap(range + 2 * kUnit, kUnit, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE, "an address not reserved");
  check(cuMemMap(range, 2 * kUnit, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE, "more than the memory has");
  check(cuMemMap(range, kUnit, 0, handle + 99, 0) == CUDA_ERROR_INVALID_VALUE, "no such memory");
  check(cuMemSetAccess(range, kUnit, &access, 1) == CUDA_ERROR_INVALID_VALUE, "access to what is not mapped");
  check(cuMemUnmap(range, kUnit) == CUDA_ERROR_INVALID_VALUE, "unmap what is not mapped");
  check(map(range, handle), "mapped");
  check(cuMemMap(range, kUnit, 0, create(kUnit), 0) == CUDA_ERROR_INVALID_VALUE, "mapped twice");
  check(cuMemUnmap(range, 2 * kUnit) == CUDA_ERROR_INVALID_VALUE, "unmap more than is mapped");
  check(cuMemAddressFree(range, 2 * kUnit) == CUDA_ERROR_INVALID_VALUE, "give back a range with a mapping");
  check(cuMemRelease(handle) == CUDA_SUCCESS && cuMemRelease(handle) == CUDA_ERROR_INVALID_VALUE, "released twice");
  const char* text = nullptr;
  check(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text) == CUDA_SUCCESS && text != nullptr, "words for an error");
  return check.failures();
}

int mapping_fails() {
  Checks check;
  cudaFree(nullptr);
  const CUmemAccessDesc access = read_and_write();
  const CUmemGenericAllocationHandle handle = create(kUnit);
  const CUdeviceptr range = reserve(2 * kUnit);
  odmoe_simulated_cuda_fail_mapping(1);
  check(cuMemMap(range, kUnit, 0, handle, 0) == CUDA_SUCCESS, "the first call");
  check(cuMemSetAccess(range, kUnit, &access, 1) == CUDA_ERROR_OUT_OF_MEMORY, "the second");
  check(cuMemSetAccess(range, kUnit, &access, 1) == CUDA_SUCCESS, "the third");
  check(cuMemUnmap(range, kUnit) == CUDA_SUCCESS, "what failed to be accessible was mapped");
  odmoe_simulated_cuda_fail_mapping(0);
  check(cuMemMap(range, kUnit, 0, handle, 0) == CUDA_ERROR_OUT_OF_MEMORY, "the next call");
  check(map(range, handle), "and not the one after it");
  return check.failures();
}

int calls_are_counted() {
  Checks check;
  const unsigned long long before = odmoe_simulated_cuda_calls();
  cudaSetDevice(0);
  const unsigned long long one = odmoe_simulated_cuda_calls();
  check(one == before + 1, "a call of the runtime");
  const CUdeviceptr range = reserve(kUnit);
  check(odmoe_simulated_cuda_calls() == one + 1, "a call of the driver");
  std::thread([&] {
    check(odmoe_simulated_cuda_calls() == 0, "another thread has made none");
    cuMemAddressFree(range, kUnit);
  }).join();
  check(odmoe_simulated_cuda_calls() == one + 1, "another thread's call");
  return check.failures();
}

int unmapped_touched() {
  const cudaStream_t stream = new_stream();
  const CUdeviceptr range = reserve(2 * kUnit);
  if (!map(range, create(kUnit))) return 1;
  launch_add_one(at(range + kUnit) - 32, at(range + kUnit) - 32, kCount, stream);
  return cudaStreamSynchronize(stream) == cudaSuccess ? 0 : 1;
}

int unmapped_between() {
  const cudaStream_t stream = new_stream();
  const CUdeviceptr range = reserve(kUnit);
  if (!map(range, create(kUnit))) return 1;
  // The device is busy long enough for the host to unmap before the kernel's turn.
  float* memory = nullptr;
  cudaMalloc(&memory, 4 << 20);
  for (int i = 0; i < 8; ++i) launch_add_one(memory, memory, 1 << 20, stream);
  launch_add_one(at(range), at(range), kCount, stream);
  cuMemUnmap(range, kUnit);
  return cudaStreamSynchronize(stream) == cudaSuccess ? 0 : 1;
}
