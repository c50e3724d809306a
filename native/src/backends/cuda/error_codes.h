// Maps errors of the CUDA runtime to our error codes.
#pragma once
#include <cuda_runtime.h>

#include "odmoe/error.h"

namespace odmoe::cuda {

// opening: the device is being opened. An error that then means that the device is unavailable means later that it is lost.
constexpr ErrorCode error_code(cudaError_t error, bool opening) {
  switch (error) {
    case cudaErrorMemoryAllocation: return ErrorCode::device_out_of_memory;
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice: return ErrorCode::device_driver_too_old;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidKernelImage: return ErrorCode::device_architecture_unsupported;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorInitializationError:
    case cudaErrorNotPermitted:
    case cudaErrorStubLibrary:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled: return opening ? ErrorCode::device_unavailable : ErrorCode::device_lost;
    case cudaErrorInvalidValue:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorNotSupported:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidResourceHandle: return ErrorCode::internal;
    default:
      // After any of these errors every further call fails, too: only a new process can use the device again.
      return ErrorCode::device_lost;
  }
}

}  // namespace odmoe::cuda
