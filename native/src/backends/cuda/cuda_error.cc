#include "cuda_error.h"

#include "error_codes.h"
#include "odmoe/error.h"

namespace odmoe::cuda {
namespace {

thread_local int openings = 0;

// Advice to the user about an error.
std::string remedy(cudaError_t error, ErrorCode code) {
  if (error == cudaErrorJitCompilerNotFound) {
    return "; the driver's compiler (libnvidia-ptxjitcompiler.so.1) is missing: install the driver whole, or build odmoe on this "
           "machine, "
           "for its device";
  }
  if (error == cudaErrorJitCompilationDisabled) {
    return "; CUDA_DISABLE_PTX_JIT forbids the driver to compile: unset it, or build odmoe on this machine, for its device";
  }
  if (code == ErrorCode::device_out_of_memory) {
    return "; other programs may hold the device's memory: see nvidia-smi, or lower what this node takes (--memory-budget)";
  }
  if (code == ErrorCode::device_driver_too_old) return "; install a newer NVIDIA driver (`odmoe doctor` shows the versions)";
  if (code == ErrorCode::device_architecture_unsupported) {
    return "; this build has no code for the device: build odmoe on this machine, with a CUDA toolkit that knows it";
  }
  if (code == ErrorCode::device_unavailable) return "; `odmoe doctor` shows the devices; --device cpu goes on without one";
  if (code == ErrorCode::device_lost)
    return "; start this daemon again, and look at the system's log (dmesg, Xid) if it happens often";
  return "";
}

}  // namespace

Opening::Opening() { openings++; }
Opening::~Opening() { openings--; }

std::string cuda_version_name(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

void check_pinned(cudaError_t error, uint64_t bytes) {
  if (error == cudaErrorMemoryAllocation) {
    throw Error(ErrorCode::device_out_of_memory,
                "this machine has no " + std::to_string(bytes) +
                    " bytes of memory left that can be pinned; stop something, or keep less of experts (--cache)");
  }
  if (error != cudaSuccess) throw_cuda_error(error, "allocating pinned host memory");
}

void throw_cuda_error(cudaError_t error, const std::string& doing) {
  const ErrorCode code = error_code(error, openings > 0);
  throw Error(code, doing + " failed: " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")" + remedy(error, code));
}

}  // namespace odmoe::cuda
