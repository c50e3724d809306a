// Brings one plane's rows through a lane: they are copied or read in place, and decoded where they are coded.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels.h"
#include "load_lanes.h"
#include "odmoe/backend.h"
#include "staging_memory.h"

namespace odmoe::cuda {

// Hands out ranges of a lane's scratch, from its start for each set of rows: the stream's order keeps one set's kernels before the
// next set's copies.
class LaneScratch {
 public:
  static constexpr uint64_t kAlignment = 256;
  static uint64_t padded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  explicit LaneScratch(const DeviceBuffer& memory) : memory_(memory) {}
  // Throws INTERNAL when the scratch is full.
  uint8_t* take(uint64_t bytes);

 private:
  DeviceBuffer memory_;
  uint64_t used_ = 0;
};

class PlaneTransfer {
 public:
  PlaneTransfer() = default;  // of a plane that is not written: needs nothing, brings null
  PlaneTransfer(const PlaneSource& source, uint64_t row_bytes, const StagingMemory& staging, int multiprocessors)
      : source_(&source),
        staging_(&staging),
        row_bytes_(row_bytes),
        multiprocessors_(multiprocessors),
        skipped_(source.skipped_bytes) {}

  // Bytes of scratch that the next `rows` rows need.
  uint64_t scratch_bytes(int64_t rows) const;
  // Starts the copies of the next `rows` rows; returns where they are plain after decode().
  const uint8_t* bring(int64_t rows, LaneScratch& scratch, cudaStream_t stream);
  // Starts the decoding of the rows that were brought.
  void decode(cudaStream_t stream);
  // True if kernels read host memory, which must then stay until they are done.
  bool reads_host_memory() const { return reads_host_memory_; }

 private:
  // Blocks that are decoded together, and the range of host memory that is copied for them.
  struct Batch {
    BlockToDecode blocks[kMostBlocksToDecode];
    int count = 0;
    const uint8_t* host = nullptr;
    uint64_t bytes = 0;
    uint8_t* device = nullptr;
  };

  const uint8_t* bring_plain(uint64_t bytes, LaneScratch& scratch, cudaStream_t stream);
  const uint8_t* bring_coded(uint64_t bytes, LaneScratch& scratch, cudaStream_t stream);
  void bring_block(const CodedBlock& block, uint64_t skipped, uint64_t taken, uint8_t* plain, LaneScratch& scratch,
                   cudaStream_t stream);
  void bring_table(LaneScratch& scratch, cudaStream_t stream);
  void copy_stretch(cudaStream_t stream);
  // Visits the blocks of the next `bytes` plain bytes: block, bytes before the first wanted one, wanted bytes.
  template <class Visit>
  void each_block(uint64_t bytes, Visit visit) const;

  const PlaneSource* source_ = nullptr;
  const StagingMemory* staging_ = nullptr;
  uint64_t row_bytes_ = 0;
  int multiprocessors_ = 0;
  int block_ = 0;                   // block of the next row
  uint64_t skipped_ = 0;            // bytes skipped: in that block of a coded plane, in the whole of a plain one
  const uint8_t* table_ = nullptr;  // the table on the device, for this set of rows
  bool reads_host_memory_ = false;
  Batch batch_;
};

}  // namespace odmoe::cuda
