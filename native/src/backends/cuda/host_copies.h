// Copies between the host's memory and the device's, in the order of the compute stream, from any thread.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <mutex>
#include <span>

#include "device_context.h"
#include "odmoe/backend.h"
#include "pinned_buffer.h"

namespace odmoe::cuda {

// Pinned memory for copies' detour. A larger piece goes to the host without; spaced rows go in parts.
inline constexpr uint64_t kBounceBytes = 1 << 20;

class HostCopies {
 public:
  // Every call is made with the context entered. No copy is on its way when this goes.
  explicit HostCopies(const DeviceContext& context);
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  // The host's memory may be used again when they return; the device need not have done anything by then.
  void to_device(void* device, const void* host, uint64_t bytes);
  void scatter(std::span<const SpacedRows> pieces, const void* host);
  // Wait for the device, once for as many pieces as fit the detour.
  void to_host(void* host, const void* device, uint64_t bytes);
  void gather(void* host, std::span<const SpacedRows> pieces);

 private:
  // Pinned memory for the next copies: behind that of earlier ones where there is room, else once those have been made.
  uint8_t* bounce(uint64_t bytes);
  void await_copies();

  const DeviceContext& context_;
  cudaStream_t stream_;
  std::mutex mutex_;  // guards what follows
  PinnedBuffer bounce_;
  uint64_t used_ = 0;           // of bounce_, by copies that may still be on their way
  cudaEvent_t read_ = nullptr;  // behind the last of those
};

}  // namespace odmoe::cuda
