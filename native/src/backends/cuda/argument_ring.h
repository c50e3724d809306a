// Sends host values to kernels (row lists, weights of the router, tables of addresses), together with the operators that need them.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <cstdint>

#include "device_arena.h"

namespace odmoe::cuda {

// Used by one thread at a time, on one stream. Each operator takes the next segment. A segment is reused once its last copy is
// done; as the stream keeps its order, earlier kernels have read the segment before new values reach the device.
class ArgumentRing {
 public:
  ArgumentRing(DeviceArena& arena, cudaStream_t stream) : arena_(arena), stream_(stream) {}
  ~ArgumentRing();
  ArgumentRing(const ArgumentRing&) = delete;
  ArgumentRing& operator=(const ArgumentRing&) = delete;

  // Begins a segment with room for `bytes` (including alignment to 16 bytes: use padded()). Throws DEVICE_OUT_OF_MEMORY.
  void begin(uint64_t bytes);
  // Copies the values into the segment; returns their address on the device. Does nothing for a null pointer.
  template <class T>
  T* add(const T* host, int64_t count) {
    return static_cast<T*>(add_bytes(host, static_cast<uint64_t>(count) * sizeof(T)));
  }
  // Sends the added values; kernels launched after this call see them.
  void send();

  template <class T>
  static uint64_t padded(int64_t count) {
    return (static_cast<uint64_t>(count) * sizeof(T) + 15) / 16 * 16;
  }

 private:
  static constexpr size_t kSegments = 8;
  static constexpr uint64_t kLeastSegmentBytes = 16 << 10;

  struct Segment {
    uint8_t* host = nullptr;
    DeviceBuffer device;
    cudaEvent_t sent = nullptr;
  };

  void* add_bytes(const void* host, uint64_t bytes);
  void grow(Segment& segment, uint64_t bytes);

  DeviceArena& arena_;
  cudaStream_t stream_;
  std::array<Segment, kSegments> segments_;
  size_t current_ = 0;
  uint64_t used_ = 0;
};

}  // namespace odmoe::cuda
