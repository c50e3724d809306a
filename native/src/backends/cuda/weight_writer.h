// Writes weights to the device: planes are copied on separate streams beside the compute stream; kernels decode them and write them
// into the layout.
#pragma once
#include <cuda_runtime.h>

#include "device_arena.h"
#include "device_context.h"
#include "load_lanes.h"
#include "odmoe/backend.h"
#include "paged_expert_memory.h"
#include "staging_memory.h"

namespace odmoe::cuda {

// Its methods may be called from any thread. They return when the host memory may be reused. A matrix in an expert memory is then
// complete for its reads, which are ordered behind the writes; any other matrix is complete for all uses.
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
  // The tiles are made on the host: it counts exponents to choose those that get codes.
  bool write_fixed4_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const uint8_t* const* planes);

  const StagingMemory& staging_;
  const ExpertMemoryDirectory& experts_;
  const int multiprocessors_;
  LoadLanes lanes_;
};

}  // namespace odmoe::cuda
