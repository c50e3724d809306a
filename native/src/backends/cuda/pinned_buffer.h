// Host memory that the device can copy to and from directly.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "cuda_error.h"

namespace odmoe::cuda {

class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  ~PinnedBuffer() { release(); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  // Makes room for at least `bytes`; the old contents are lost. No copy may be using the buffer.
  uint8_t* reserve(uint64_t bytes) {
    if (bytes <= bytes_) return data_;
    release();
    uint64_t size = kLeastBytes;
    while (size < bytes) size *= 2;
    void* data = nullptr;
    check_pinned(cudaHostAlloc(&data, size, cudaHostAllocDefault), size);
    data_ = static_cast<uint8_t*>(data);
    bytes_ = size;
    return data_;
  }

 private:
  static constexpr uint64_t kLeastBytes = 4096;

  void release() noexcept {
    if (data_ != nullptr) cudaFreeHost(data_);
    data_ = nullptr;
    bytes_ = 0;
  }

  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace odmoe::cuda
