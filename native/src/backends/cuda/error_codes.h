// Which of our errors an error of the CUDA runtime is.
#pragma once
#include <cuda_runtime.h>

namespace odmoe::cuda {

// opening: the device is being opened. What says that it cannot be had then says later that it is gone.
constexpr const char* error_code(cudaError_t error, bool opening) {
  switch (error) {
    case cudaErrorMemoryAllocation: return "DEVICE_OUT_OF_MEMORY";
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice: return "DEVICE_DRIVER_TOO_OLD";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidKernelImage: return "DEVICE_ARCHITECTURE_UNSUPPORTED";
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorInitializationError:
    case cudaErrorNotPermitted:
    case cudaErrorStubLibrary:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled: return opening ? "DEVICE_UNAVAILABLE" : "DEVICE_LOST";
    case cudaErrorInvalidValue:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorNotSupported:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidResourceHandle: return "INTERNAL";
    default:
      // After any of these each further call fails too: only a new process gets the device back.
      return "DEVICE_LOST";
  }
}

}  // namespace odmoe::cuda
