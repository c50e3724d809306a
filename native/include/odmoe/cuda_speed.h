// What a device's memory and its host's link give at best, and what recovering weights takes: measured by odmoe_cuda_bench, which
// judges operators by it.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "odmoe/backend.h"

namespace odmoe {

enum class CudaCopy : uint8_t { on_device, from_pinned, from_pageable };

// A BF16 matrix as a pack holds it: exponents in coded blocks of whole rows, signs and mantissas plain. Host memory.
struct CudaRecovery {
  CodecKind codec = CodecKind::fixed4;
  const uint8_t* table = nullptr;
  std::vector<CodedBlock> blocks;
  const uint8_t* sign_mantissas = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  uint64_t matrix_bytes = 0;  // of the matrix, as the backend keeps it
  uint8_t* matrix = nullptr;  // where what was recovered goes to; null: nowhere
};

struct CudaRecoverySeconds {
  double decode = 0;  // of the exponents alone
  double whole = 0;   // and laying the values out
};

// From one thread at a time. Throws as operators do.
class CudaSpeed {
 public:
  virtual ~CudaSpeed() = default;
  // Seconds of one of `times` copies in a row by the device's clock. Copies go between two buffers of that size.
  virtual double copy_seconds(CudaCopy copy, uint64_t bytes, int times) = 0;
  // The same of recovering a matrix whose planes are in device memory already.
  virtual CudaRecoverySeconds recovery_seconds(const CudaRecovery& recovery, int times) = 0;
  // FP32 operations a second, two for each fused multiply-add; 0 where the runtime does not tell the clock.
  virtual double peak_flops() const = 0;
};

// Throws as make_cuda_backend does.
std::unique_ptr<CudaSpeed> make_cuda_speed(int device);

}  // namespace odmoe
