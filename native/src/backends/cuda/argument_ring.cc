#include "argument_ring.h"

#include <algorithm>
#include <cstring>

#include "cuda_error.h"
#include "odmoe/error.h"

namespace odmoe::cuda {

ArgumentRing::~ArgumentRing() {
  for (Segment& segment : segments_) {
    if (segment.sent != nullptr) cudaEventDestroy(segment.sent);
    if (segment.host != nullptr) cudaFreeHost(segment.host);
    arena_.release(segment.device);
  }
}

void ArgumentRing::grow(Segment& segment, uint64_t bytes) {
  // Kernels that still read the old buffer must end before it is released.
  check(cudaStreamSynchronize(stream_), "waiting for the device");
  arena_.release(segment.device);
  if (segment.host != nullptr) cudaFreeHost(segment.host);
  segment.host = nullptr;
  uint64_t size = kLeastSegmentBytes;
  while (size < bytes) size *= 2;
  segment.device = arena_.allocate(size);
  void* host = nullptr;
  check_pinned(cudaHostAlloc(&host, size, cudaHostAllocDefault), size);
  segment.host = static_cast<uint8_t*>(host);
  if (segment.sent == nullptr) check(cudaEventCreateWithFlags(&segment.sent, cudaEventDisableTiming), "creating an event");
}

void ArgumentRing::begin(uint64_t bytes) {
  current_ = (current_ + 1) % kSegments;
  Segment& segment = segments_[current_];
  if (segment.device.bytes < bytes || segment.host == nullptr) {
    grow(segment, bytes);
  } else {
    check(cudaEventSynchronize(segment.sent), "waiting for a copy to the device");
  }
  used_ = 0;
}

void* ArgumentRing::add_bytes(const void* host, uint64_t bytes) {
  if (host == nullptr) return nullptr;
  Segment& segment = segments_[current_];
  const uint64_t at = used_;
  used_ += (bytes + 15) / 16 * 16;
  if (used_ > segment.device.bytes) throw Error(ErrorCode::internal, "an operator's arguments outgrow their segment");
  std::memcpy(segment.host + at, host, bytes);
  return static_cast<uint8_t*>(segment.device.data) + at;
}

void ArgumentRing::send() {
  Segment& segment = segments_[current_];
  check(cudaMemcpyAsync(segment.device.data, segment.host, used_, cudaMemcpyHostToDevice, stream_),
        "copying an operator's arguments to the device");
  check(cudaEventRecord(segment.sent, stream_), "recording an event");
}

}  // namespace odmoe::cuda
