// All memory of a loader besides the slots: staging, the decompression threads' scratch, entries. All of it is taken from the
// device at once.
#pragma once
#include <array>
#include <cstdint>

#include "load_plan.h"
#include "odmoe/device.h"
#include "odmoe/expert.h"

namespace odmoe {

// Sizes and counts of the memory of a loader.
struct LoadMemoryLayout {
  int threads = 1;
  int shard_buffers = 0;
  int piece_buffers = 0;
  PlanLimits limits;
  uint64_t scratch_bytes = 0;  // for one coded plane of one thread; 0: nothing is coded
  uint64_t shared_bytes = 0;   // all memory except the entries
  uint64_t total_bytes = 0;
};

// The number in the options; otherwise a number that leaves enough of the processor to executes.
int decompression_threads(const LoaderOptions& options);
// The number of reads in flight; 1 where the rate of reads is limited.
int read_depth(const LoaderOptions& options);
LoadMemoryLayout load_memory_layout(const ExpertShape& shape, const LoaderOptions& options);

class LoadMemory {
 public:
  // Throws DEVICE_OUT_OF_MEMORY.
  LoadMemory(const std::shared_ptr<Backend>& backend, const LoadMemoryLayout& layout, const LoaderOptions& options);

  uint8_t* shard_buffers() const { return shard_buffers_; }
  uint8_t* piece_buffers() const { return piece_buffers_; }
  uint8_t* scratch(int thread) const { return scratch_ + static_cast<uint64_t>(thread) * thread_scratch_bytes_; }
  uint8_t* entries(Part part) const { return entries_[index_of(part)]; }

 private:
  DeviceMemory memory_;
  uint8_t* shard_buffers_ = nullptr;
  uint8_t* piece_buffers_ = nullptr;
  uint8_t* scratch_ = nullptr;
  uint64_t thread_scratch_bytes_ = 0;
  std::array<uint8_t*, kParts> entries_ = {};
};

}  // namespace odmoe
