#include "load_staging.h"

#include <utility>

namespace odmoe {

BufferRing::BufferRing(uint8_t* memory, int count, uint64_t bytes_each) : memory_(memory), count_(count), bytes_each_(bytes_each) {
  for (int i = count; i > 0; i--) free_.push_back(i - 1);
}

int BufferRing::take() {
  const int buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void BufferRing::give_back(int& buffer) {
  if (buffer != kNoBuffer) free_.push_back(std::exchange(buffer, kNoBuffer));
}

}  // namespace odmoe
