// Host values for kernels (row lists, weights of the router, tables of addresses), sent along with the operators that need them.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <cstdint>

#include "device_arena.h"

namespace odmoe::cuda {

// Used by one thread at a time, on one stream. Each operator takes the next segment; a segment is taken again once its last copy has
// been made, and as the stream keeps its order, kernels have then been given what they needed.
class ArgumentRing {
 public:
  ArgumentRing(DeviceArena& arena, cudaStream_t stream) : arena_(arena), stream_(stream) {}
  ~ArgumentRing();
  ArgumentRing(const ArgumentRing&) = delete;
  ArgumentRing& operator=(const ArgumentRing&) = delete;

  // A segment with room for `bytes` (with what alignment to 16 bytes takes: use padded()). Throws DEVICE_OUT_OF_MEMORY.
  void begin(uint64_t bytes);
  // Copies the values into the segment; where they will stand on the device. Nothing for a null pointer.
  template <class T>
  T* add(const T* host, int64_t count) {
    return static_cast<T*>(add_bytes(host, static_cast<uint64_t>(count) * sizeof(T)));
  }
  // What has been added is on its way; kernels launched after this see it.
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
