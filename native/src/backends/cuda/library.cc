// The library's one symbol.
#include "cuda_backend.h"
#include "cuda_error.h"
#include "device_list.h"
#include "device_speed.h"
#include "odmoe/cuda.h"

#ifndef ODMOE_VERSION
#error "ODMOE_VERSION comes from the build"
#endif

namespace odmoe::cuda {
namespace {

std::unique_ptr<Backend> open_device(const CudaOptions& options) {
  const Opening opening;
  require_usable_device(options.device);
  return std::make_unique<CudaBackend>(options);
}

std::unique_ptr<CudaSpeed> open_speed(int device) {
  const Opening opening;
  require_usable_device(device);
  return std::make_unique<DeviceSpeed>(device);
}

}  // namespace
}  // namespace odmoe::cuda

extern "C" __attribute__((visibility("default"))) const odmoe::CudaLibrary* odmoe_cuda_library() {
  static const odmoe::CudaLibrary library{ODMOE_VERSION, &odmoe::cuda::device_status, &odmoe::cuda::open_device,
                                          &odmoe::cuda::open_speed};
  return &library;
}
