// Weights on their way to the device: planes are copied there on streams of their own, beside what the compute stream does, decoded
// and laid out by kernels.
#pragma once
#include <cuda_runtime.h>

#include "device_arena.h"
#include "device_context.h"
#include "load_lanes.h"
#include "odmoe/backend.h"
#include "paged_expert_memory.h"
#include "staging_memory.h"

namespace odmoe::cuda {

// Methods from any thread. They return when the host memory may be used again; a matrix in an expert memory is then whole for its
// reads, which are ordered behind this, any other one for everybody.
class WeightWriter {
 public:
  // All must outlive it. Throws DEVICE_OUT_OF_MEMORY.
  WeightWriter(const DeviceContext& context, DeviceArena& arena, const StagingMemory& staging, const ExpertMemoryDirectory& experts)
      : staging_(staging), experts_(experts), multiprocessors_(context.traits().multiprocessors), lanes_(context, arena) {}
  WeightWriter(const WeightWriter&) = delete;
  WeightWriter& operator=(const WeightWriter&) = delete;

  bool write_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const uint8_t* const* planes);
  void write_coded_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const PlaneSource* planes);

 private:
  // Made on the host: which exponents a tile has codes for is found by counting.
  bool write_fixed4_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const uint8_t* const* planes);

  const StagingMemory& staging_;
  const ExpertMemoryDirectory& experts_;
  const int multiprocessors_;
  LoadLanes lanes_;
};

}  // namespace odmoe::cuda
