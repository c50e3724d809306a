// Turns errors of the CUDA runtime and driver into our errors.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <string>

namespace odmoe::cuda {

// While an Opening exists, its thread is opening a device.
class Opening {
 public:
  Opening();
  ~Opening();
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;
};

// Throws DEVICE_OUT_OF_MEMORY, DEVICE_DRIVER_TOO_OLD, DEVICE_ARCHITECTURE_UNSUPPORTED, DEVICE_UNAVAILABLE (only within an opening),
// or DEVICE_LOST for every error that leaves the process without a working device. `doing`: "copying 4096 bytes to the device".
[[noreturn]] void throw_cuda_error(cudaError_t error, const std::string& doing);

inline void check(cudaError_t error, const char* doing) {
  if (error != cudaSuccess) throw_cuda_error(error, doing);
}

// Checks an allocation of pinned host memory; its failure says nothing about device memory.
void check_pinned(cudaError_t error, uint64_t bytes);

// "12.4" for 12040.
std::string cuda_version_name(int version);

}  // namespace odmoe::cuda
