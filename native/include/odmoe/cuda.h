// NVIDIA devices. Their code is a separate shared library that is opened at its first use, so that one build serves machines with
// and without a GPU.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "odmoe/backend.h"

namespace odmoe {

struct CudaOptions {
  int device = 0;             // as the driver counts them
  uint64_t budget_bytes = 0;  // includes the driver's context; 0: no limit
  bool fast = false;          // tensor cores and BF16 activations where they are faster: differs from the one arithmetic
};

struct CudaDevice {
  int index = 0;
  std::string name;
  std::string capability;  // "8.6"
  uint64_t memory_bytes = 0;
  int multiprocessors = 0;
  bool integrated = false;    // the device uses the host's memory
  bool paged_memory = false;  // addresses can be reserved, and memory can be mapped there
  bool usable = false;
  std::string reason;  // why not
};

struct CudaStatus {
  bool built = false;                      // the library exists
  std::string library;                     // its path, or the path where it was looked for
  std::vector<std::string> architectures;  // architectures with code: "sm_86", ..., and "compute_90" for any newer one
  bool usable = false;                     // at least one device is usable
  std::string reason;                      // why no device is usable; empty where one is
  std::string driver_version;              // the CUDA version that the driver knows, "12.4"; empty: no driver
  std::string runtime_version;
  std::vector<CudaDevice> devices;
};

// Does not throw on a machine without a GPU: the reason says what is missing.
CudaStatus cuda_status();

// Throws DEVICE_UNAVAILABLE (no library, no device of this number, a device that another process uses exclusively),
// DEVICE_DRIVER_TOO_OLD, DEVICE_ARCHITECTURE_UNSUPPORTED, DEVICE_OUT_OF_MEMORY (the budget is smaller than the context). Operators
// and copies of the backend throw DEVICE_LOST once the driver has given up the device; no further call can then succeed.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);

class CudaSpeed;  // odmoe/cuda_speed.h

// The only symbol that the library exports.
inline constexpr const char* kCudaLibraryEntry = "odmoe_cuda_library";
struct CudaLibrary {
  const char* build = nullptr;  // ODMOE_VERSION: library and addon come from one build
  CudaStatus (*status)() = nullptr;
  std::unique_ptr<Backend> (*open)(const CudaOptions&) = nullptr;
  std::unique_ptr<CudaSpeed> (*open_speed)(int device) = nullptr;
};

}  // namespace odmoe
