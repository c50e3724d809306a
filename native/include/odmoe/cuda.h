// NVIDIA devices. The code for them is a shared library of its own, opened when it is first asked for, so that one build serves
// machines with and without a GPU.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "odmoe/backend.h"

namespace odmoe {

struct CudaOptions {
  int device = 0;             // as the driver counts them
  uint64_t budget_bytes = 0;  // with what the driver's context takes; 0: no limit
  bool fast = false;          // tensor cores and BF16 activations where they are faster: not the one arithmetic
};

struct CudaDevice {
  int index = 0;
  std::string name;
  std::string capability;  // "8.6"
  uint64_t memory_bytes = 0;
  int multiprocessors = 0;
  bool integrated = false;    // its memory is the host's
  bool paged_memory = false;  // addresses can be reserved and memory be mapped there
  bool usable = false;
  std::string reason;  // why not
};

struct CudaStatus {
  bool built = false;                      // the library is there
  std::string library;                     // its path, or where it was looked for
  std::vector<std::string> architectures;  // that it has code for: "sm_86", ..., and "compute_90" for any newer one
  bool usable = false;                     // some device is
  std::string reason;                      // why not; empty where usable
  std::string driver_version;              // the CUDA version that the driver knows, "12.4"; empty: no driver
  std::string runtime_version;
  std::vector<CudaDevice> devices;
};

// Never throws for a machine without a GPU: the reason says what is missing.
CudaStatus cuda_status();

// Throws DEVICE_UNAVAILABLE (no library, no device of this number, one in use by others alone), DEVICE_DRIVER_TOO_OLD,
// DEVICE_ARCHITECTURE_UNSUPPORTED, DEVICE_OUT_OF_MEMORY (the budget does not even hold the context). Operators and copies of the
// backend throw DEVICE_LOST from the call on in which the driver gave the device up; no further call can then succeed.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);

class CudaSpeed;  // odmoe/cuda_speed.h

// The one symbol of the library.
inline constexpr const char* kCudaLibraryEntry = "odmoe_cuda_library";
struct CudaLibrary {
  const char* build = nullptr;  // ODMOE_VERSION: library and addon come from one build
  CudaStatus (*status)() = nullptr;
  std::unique_ptr<Backend> (*open)(const CudaOptions&) = nullptr;
  std::unique_ptr<CudaSpeed> (*open_speed)(int device) = nullptr;
};

}  // namespace odmoe
