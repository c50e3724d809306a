// One process's use of one device: its properties, its compute stream, and the driver's figures about its memory.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>

#include "kernels.h"
#include "nvml_api.h"

namespace odmoe::cuda {

class DeviceContext {
 public:
  // Makes the driver's context and loads the kernels, so that their memory is known from here on. Throws DEVICE_UNAVAILABLE,
  // DEVICE_DRIVER_TOO_OLD, DEVICE_ARCHITECTURE_UNSUPPORTED, DEVICE_OUT_OF_MEMORY.
  explicit DeviceContext(int device);
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  // Makes this device the thread's current one; every call of the runtime works on that device.
  void enter() const;

  int device() const { return device_; }
  const std::string& name() const { return name_; }
  const DeviceTraits& traits() const { return traits_; }
  bool paged_memory() const { return mapping_granularity_ > 0; }
  // True if the device can read unpinned host memory (HMM, Grace): copies from it may then happen after the call has returned.
  bool reads_pageable_memory() const { return reads_pageable_memory_; }
  // It has the highest priority: its kernels run before those of load lanes. Copies between host and device know no priorities.
  cudaStream_t compute_stream() const { return compute_stream_; }
  int lowest_priority() const { return lowest_priority_; }
  // Unit in which memory is mapped; 0: the device cannot map memory.
  uint64_t mapping_granularity() const { return mapping_granularity_; }
  // Device memory that the process used before anything was allocated; the same value for all of its contexts on the device. It is
  // the driver's figure, or an estimate where the driver gives none.
  uint64_t context_bytes() const { return context_bytes_; }
  // Device memory of this process now, as the driver reports it; none where the driver does not count it (integrated devices).
  std::optional<uint64_t> driver_used_bytes() const { return nvml_.used_bytes(); }

 private:
  void open();
  void close() noexcept;
  void make_stream();
  void load_kernels();
  uint64_t shared_context_bytes() const;
  uint64_t measured_context_bytes() const;

  int device_;
  std::string name_;
  DeviceTraits traits_;
  uint64_t mapping_granularity_ = 0;
  bool reads_pageable_memory_ = false;
  int lowest_priority_ = 0;
  cudaStream_t compute_stream_ = nullptr;
  NvmlDevice nvml_;
  uint64_t context_bytes_ = 0;
};

}  // namespace odmoe::cuda
