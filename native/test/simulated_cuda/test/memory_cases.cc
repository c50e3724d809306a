// Device memory: its ends, its count, its copies.
#include <cmath>
#include <vector>

#include "cases.h"
#include "kernels.h"

namespace {

size_t free_bytes() {
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return free;
}

}  // namespace

int past_the_end() {
  const cudaStream_t stream = new_stream();
  float* memory = nullptr;
  cudaMalloc(&memory, 64 * sizeof(float));
  launch_add_one(memory, memory, 65, stream);
  return cudaStreamSynchronize(stream) == cudaSuccess ? 0 : 1;
}

int host_touches_device() {
  float* memory = nullptr;
  cudaMalloc(&memory, 64 * sizeof(float));
  *static_cast<volatile float*>(memory) = 1.0f;
  return 0;
}

int use_after_free() {
  const cudaStream_t stream = new_stream();
  float* memory = nullptr;
  cudaMalloc(&memory, 64 * sizeof(float));
  cudaFree(memory);
  launch_add_one(memory, memory, 64, stream);
  return cudaStreamSynchronize(stream) == cudaSuccess ? 0 : 1;
}

int host_pointer() {
  std::vector<float> memory(64);
  launch_add_one(memory.data(), memory.data(), 64, new_stream());
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
}

int registered() {
  Checks check;
  const cudaStream_t stream = new_stream();
  std::vector<float> memory(64, 2.0f);
  check(cudaHostRegister(memory.data(), 256, cudaHostRegisterMapped) == cudaSuccess, "registered");
  check(cudaHostRegister(memory.data(), 256, cudaHostRegisterMapped) == cudaErrorHostMemoryAlreadyRegistered, "once only");
  check(launch_add_one(memory.data(), memory.data(), 64, stream) == cudaSuccess, "launched");
  check(cudaHostUnregister(memory.data()) == cudaSuccess, "no longer registered");
  check(memory[0] == 3.0f && memory[63] == 3.0f, "the right numbers");
  check(cudaHostUnregister(memory.data()) == cudaErrorHostMemoryNotRegistered, "once only");
  return check.failures();
}

int accounting() {
  Checks check;
  const size_t total = size_t{2} << 30, context = size_t{64} << 20;
  check(free_bytes() == total - context, "the context counts");
  float* memory = nullptr;
  check(cudaMalloc(&memory, 1000) == cudaSuccess && free_bytes() == total - context - 1024, "an allocation counts");
  void* whole = nullptr;
  check(cudaMalloc(&whole, total) == cudaErrorMemoryAllocation && whole == nullptr, "more than there is");
  check(cudaFree(memory) == cudaSuccess && free_bytes() == total - context, "freed");
  check(cudaFree(memory) == cudaErrorInvalidValue, "freed twice");
  check(cudaFree(nullptr) == cudaSuccess, "nothing freed");
  return check.failures();
}

int copies() {
  Checks check;
  const cudaStream_t stream = new_stream();
  float *a = nullptr, *b = nullptr, *pinned = nullptr;
  cudaMalloc(&a, 256);
  cudaMalloc(&b, 256);
  cudaHostAlloc(&pinned, 256, cudaHostAllocMapped);
  std::vector<float> host(64);
  check(cudaMemcpy(host.data(), a, 256, cudaMemcpyDeviceToHost) == cudaSuccess && std::isnan(host[0]), "poisoned at first");
  check(cudaMemcpy(a, host.data(), 257, cudaMemcpyHostToDevice) == cudaErrorInvalidValue, "past the end");
  check(cudaMemcpy(host.data(), a, 256, cudaMemcpyHostToDevice) == cudaErrorInvalidValue, "the wrong way round");
  check(cudaMemcpy(a, b, 256, static_cast<cudaMemcpyKind>(9)) == cudaErrorInvalidMemcpyDirection, "no such kind");
  host.assign(64, 4.0f);
  check(cudaMemcpyAsync(a, host.data(), 256, cudaMemcpyDefault, stream) == cudaSuccess, "to the device");
  check(cudaMemcpyAsync(b, a, 256, cudaMemcpyDeviceToDevice, stream) == cudaSuccess, "within the device");
  check(cudaMemsetAsync(b, 0, 4, stream) == cudaSuccess, "set");
  check(cudaMemcpyAsync(pinned, b, 256, cudaMemcpyDeviceToHost, stream) == cudaSuccess, "to pinned memory");
  cudaStreamSynchronize(stream);
  check(pinned[0] == 0.0f && pinned[1] == 4.0f && pinned[63] == 4.0f, "the right numbers");
  float* seen = nullptr;
  check(cudaHostGetDevicePointer(&seen, pinned, 0) == cudaSuccess, "host memory on the device");
  launch_add_one(seen, seen, 64, stream);
  cudaStreamSynchronize(stream);
  check(pinned[0] == 1.0f && pinned[63] == 5.0f, "a kernel at host memory");
  cudaPointerAttributes attributes;
  check(cudaPointerGetAttributes(&attributes, a + 3) == cudaSuccess && attributes.type == cudaMemoryTypeDevice, "device");
  check(cudaPointerGetAttributes(&attributes, pinned) == cudaSuccess && attributes.type == cudaMemoryTypeHost, "pinned");
  check(cudaPointerGetAttributes(&attributes, &check) == cudaSuccess, "other memory");
  check(attributes.type == cudaMemoryTypeUnregistered, "of no device");
  return check.failures();
}
