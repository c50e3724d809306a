// Best speeds of a device's memory and of its link to the host, and the time of recovering weights. odmoe_cuda_bench measures them
// and compares operators with them.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "odmoe/backend.h"

namespace odmoe {

enum class CudaCopy : uint8_t { on_device, from_pinned, from_pageable };

// A BF16 matrix as a pack stores it: exponents in coded blocks of whole rows, plain signs and mantissas. In host memory.
struct CudaRecovery {
  CodecKind codec = CodecKind::fixed4;
  const uint8_t* table = nullptr;
  std::vector<CodedBlock> blocks;
  const uint8_t* sign_mantissas = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  uint64_t matrix_bytes = 0;  // size of the matrix in the backend's layout
  uint8_t* matrix = nullptr;  // receives the recovered matrix; null: not copied
};

struct CudaRecoverySeconds {
  double decode = 0;  // decoding the exponents alone
  double whole = 0;   // decoding and laying out the values
};

// To be called from one thread at a time. Throws the same errors as operators.
class CudaSpeed {
 public:
  virtual ~CudaSpeed() = default;
  // Mean seconds of one copy, of `times` copies in a row, by the device's clock. Copies go between two buffers of that size.
  virtual double copy_seconds(CudaCopy copy, uint64_t bytes, int times) = 0;
  // The same for recovering a matrix whose planes are already in device memory.
  virtual CudaRecoverySeconds recovery_seconds(const CudaRecovery& recovery, int times) = 0;
  // FP32 operations a second, two for each fused multiply-add; 0 where the runtime does not report the clock rate.
  virtual double peak_flops() const = 0;
};

// Throws the same errors as make_cuda_backend.
std::unique_ptr<CudaSpeed> make_cuda_speed(int device);

}  // namespace odmoe
