// Measures copies and the recovery of weights by CUDA events, on its own stream.
#pragma once
#include <cuda_runtime.h>

#include <functional>

#include "device_context.h"
#include "odmoe/cuda_speed.h"

namespace odmoe::cuda {

class DeviceSpeed final : public CudaSpeed {
 public:
  explicit DeviceSpeed(int device);
  ~DeviceSpeed() override;
  DeviceSpeed(const DeviceSpeed&) = delete;
  DeviceSpeed& operator=(const DeviceSpeed&) = delete;

  double copy_seconds(CudaCopy copy, uint64_t bytes, int times) override;
  CudaRecoverySeconds recovery_seconds(const CudaRecovery& recovery, int times) override;
  double peak_flops() const override;

 private:
  // Mean seconds of one of `times` launches in a row, after one launch that is not counted.
  double seconds_of(int times, const std::function<void()>& launch);

  DeviceContext context_;
  cudaStream_t stream_;  // the context's compute stream
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace odmoe::cuda
