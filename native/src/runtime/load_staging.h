// The buffers between storage and slot, a fixed number of each kind. Not synchronized: the loader's lock guards them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "load_plan.h"

namespace odmoe {

inline constexpr int kNoBuffer = -1;

// Equal buffers in one stretch of memory. The last free one is kept for urgent loads, so that what main waits for never waits
// until a load of lower priority has been read to the end of its shard.
class BufferRing {
 public:
  // `memory`: count x bytes_each, on a boundary of kReadAlignment.
  BufferRing(uint8_t* memory, int count, uint64_t bytes_each);

  bool has_free(bool urgent) const { return free_.size() > (urgent ? 0u : 1u); }
  int take();
  void give_back(int& buffer);
  uint8_t* bytes(int buffer) const { return memory_ + static_cast<uint64_t>(buffer) * bytes_each_; }
  int count() const { return count_; }
  int free_count() const { return static_cast<int>(free_.size()); }

 private:
  uint8_t* memory_;
  int count_;
  uint64_t bytes_each_;
  std::vector<int> free_;
};

// For each decompression thread the shard it works on; one that is being read, one read ahead, and one for urgent loads. With several
// reads in flight those of an expert's three matrices are read together.
inline int shard_buffer_count(int decompression_threads, int read_depth) {
  return decompression_threads + 2 + std::min(read_depth, static_cast<int>(kExpertTensors));
}
// Some more of these small ones, so that neither side waits for the other whenever the processor is busy with something else.
inline int piece_buffer_count(int decompression_threads, int read_depth) { return 2 * decompression_threads + 5 + read_depth; }

}  // namespace odmoe
