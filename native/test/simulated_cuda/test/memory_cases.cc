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

int freed_in_flight() {
  constexpr int kCount = 1 << 16;
  const cudaStream_t stream = new_stream();
  float* memory = nullptr;
  cudaMalloc(&memory, kCount * sizeof(float));
  for (int i = 0; i < 20; ++i) launch_add_one(memory, memory, kCount, stream);
  cudaFree(memory);
  return cudaStreamSynchronize(stream) == cudaSuccess ? 0 : 1;
}

int pinned_freed_in_flight() {
  constexpr size_t kBytes = size_t{1} << 20;
  const cudaStream_t stream = new_stream();
  float *memory = nullptr, *pinned = nullptr;
  cudaMalloc(&memory, kBytes);
  cudaHostAlloc(&pinned, kBytes, cudaHostAllocDefault);
  for (int i = 0; i < 20; ++i) cudaMemcpyAsync(memory, pinned, kBytes, cudaMemcpyHostToDevice, stream);
  cudaFreeHost(pinned);
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

// Rows of 12 bytes: 20 bytes apart on the device, 16 on the host.
int copies_of_rows() {
  Checks check;
  const cudaStream_t stream = new_stream();
  constexpr cudaMemcpyKind kUp = cudaMemcpyHostToDevice, kDown = cudaMemcpyDeviceToHost;
  float *device = nullptr, *pinned = nullptr;
  cudaMalloc(&device, 256);
  cudaHostAlloc(&pinned, 256, cudaHostAllocDefault);
  std::vector<float> host(64);
  for (int i = 0; i < 64; ++i) host[static_cast<size_t>(i)] = pinned[i] = static_cast<float>(i);
  const float* const sources[] = {host.data(), pinned};
  for (const float* from : sources) {
    cudaMemsetAsync(device, 0, 256, stream);
    check(cudaMemcpy2DAsync(device + 1, 20, from, 16, 12, 5, kUp, stream) == cudaSuccess, "to the device");
    std::vector<float> whole(64), back(64, -1.0f);
    check(cudaMemcpyAsync(whole.data(), device, 256, kDown, stream) == cudaSuccess, "as it lies");
    check(cudaMemcpy2DAsync(back.data(), 16, device + 1, 20, 12, 5, kDown, stream) == cudaSuccess, "to the host");
    cudaStreamSynchronize(stream);
    for (size_t i = 0; i < 64; ++i) {
      const size_t row = (i + 4) / 5 - 1, column = (i + 4) % 5;
      const bool copied = i > 0 && row < 5 && column < 3;
      check(whole[i] == (copied ? static_cast<float>(4 * row + column) : 0.0f), "rows and nothing between them");
      check(back[i] == (i < 20 && i % 4 < 3 ? static_cast<float>(i) : -1.0f), "the same rows");
    }
  }
  check(cudaMemcpy2DAsync(device, 61, pinned, 61, 12, 5, kUp, stream) == cudaSuccess, "the last row ends where memory does");
  check(cudaMemcpy2DAsync(device, 62, pinned, 61, 12, 5, kUp, stream) == cudaErrorInvalidValue, "past the device's end");
  check(cudaMemcpy2DAsync(device, 61, pinned, 62, 12, 5, kUp, stream) == cudaErrorInvalidValue, "past the host's end");
  check(cudaMemcpy2DAsync(pinned, 16, device, 16, 12, 5, kUp, stream) == cudaErrorInvalidValue, "the wrong way round");
  check(cudaMemcpy2DAsync(device, 16, pinned, 16, 12, 5, static_cast<cudaMemcpyKind>(9), stream) == cudaErrorInvalidMemcpyDirection,
        "no such kind");
  check(cudaMemcpy2DAsync(device, 11, pinned, 16, 12, 5, kUp, stream) == cudaErrorInvalidPitchValue, "rows that overlap");
  check(cudaMemcpy2DAsync(device, 16, pinned, 11, 12, 5, kUp, stream) == cudaErrorInvalidPitchValue, "and on the host");
  check(cudaMemcpy2DAsync(device, size_t{1} << 31, pinned, 16, 12, 1, kUp, stream) == cudaErrorInvalidPitchValue, "too far apart");
  check(cudaMemcpy2DAsync(device, 16, pinned, 16, 12, 0, kUp, stream) == cudaSuccess, "no rows");
  return check.failures();
}
