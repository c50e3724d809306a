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

// Bytes of the pinned bounce buffer. A larger piece is copied to the host without it; spaced rows are copied in parts.
inline constexpr uint64_t kBounceBytes = 1 << 20;

class HostCopies {
 public:
  // Every call needs the context to be entered. No copy may be in flight at destruction.
  explicit HostCopies(const DeviceContext& context);
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  // The caller may reuse the host memory when they return; the device may not have done anything by then.
  void to_device(void* device, const void* host, uint64_t bytes);
  void scatter(std::span<const SpacedRows> pieces, const void* host);
  // These wait for the device, once for as many pieces as fit the bounce buffer.
  void to_host(void* host, const void* device, uint64_t bytes);
  void gather(void* host, std::span<const SpacedRows> pieces);

 private:
  // Returns pinned memory for the next copies: behind that of earlier copies where there is room, otherwise after those copies are
  // done.
  uint8_t* bounce(uint64_t bytes);
  void await_copies();

  const DeviceContext& context_;
  cudaStream_t stream_;
  std::mutex mutex_;  // guards the members below
  PinnedBuffer bounce_;
  uint64_t used_ = 0;           // bytes of bounce_ used by copies that may still be in flight
  cudaEvent_t read_ = nullptr;  // recorded behind the last of these copies
};

}  // namespace odmoe::cuda
