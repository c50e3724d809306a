// The buffers between storage and slot, a fixed number of each kind. Not synchronized: the loader's lock guards them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "load_plan.h"

namespace odmoe {

inline constexpr int kNoBuffer = -1;

// Equal buffers in one range of memory. The last free buffer is reserved for urgent loads, so that a load for which main waits
// never waits until a load of lower priority has been read to the end of its shard.
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

// One buffer for the shard of each decompression thread, one for the shard that is being read, one for a shard that is read ahead,
// and one for urgent loads. With several reads in flight the shards of an expert's three matrices are read together.
inline int shard_buffer_count(int decompression_threads, int read_depth) {
  return decompression_threads + 2 + std::min(read_depth, static_cast<int>(kExpertTensors));
}
// There are more of these small buffers, so that neither side waits for the other when the processor is busy with other work.
inline int piece_buffer_count(int decompression_threads, int read_depth) { return 2 * decompression_threads + 5 + read_depth; }

}  // namespace odmoe
