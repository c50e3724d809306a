#include "cuda_error.h"

#include "odmoe/error.h"

namespace odmoe::cuda {

std::string cuda_version_name(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void check_pinned(cudaError_t error, uint64_t bytes) {
  if (error == cudaErrorMemoryAllocation) {
    throw Error("DEVICE_OUT_OF_MEMORY", "this machine has no " + std::to_string(bytes) +
                                            " bytes of memory left that can be pinned; stop something, or keep less of experts (--cache)");
  }
  if (error != cudaSuccess) throw_cuda_error(error, "allocating pinned host memory");
}

void throw_cuda_error(cudaError_t error, const std::string& doing) {
  const std::string what = doing + " failed: " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")";
  switch (error) {
    case cudaErrorMemoryAllocation:
      throw Error("DEVICE_OUT_OF_MEMORY",
                  what + "; other programs may hold the device's memory: see nvidia-smi, or lower what this node takes (--memory-budget)");
    case cudaErrorInsufficientDriver:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
      throw Error("DEVICE_DRIVER_TOO_OLD", what + "; install a newer NVIDIA driver (`odmoe doctor` shows the versions)");
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidKernelImage:
      throw Error("DEVICE_ARCHITECTURE_UNSUPPORTED",
                  what + "; this build has no code for the device: build odmoe on this machine, with a CUDA toolkit that knows it");
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorInitializationError:
    case cudaErrorNotPermitted:
    case cudaErrorStubLibrary:
      throw Error("DEVICE_UNAVAILABLE", what + "; `odmoe doctor` shows the devices; --device cpu goes on without one");
    case cudaErrorInvalidValue:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorNotSupported:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidResourceHandle:
      throw Error("INTERNAL", what);
    default:
      // After any of these each further call fails too: only a new process gets the device back.
      throw Error("DEVICE_LOST", what + "; start this daemon again, and look at the system's log (dmesg, Xid) if it happens often");
  }
}

}  // namespace odmoe::cuda
