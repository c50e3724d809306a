// How many objects of a kind there are in this process, for tests that nothing is left.
#pragma once
#include <atomic>
#include <cstdint>

namespace odmoe {

// Base of a class whose objects are counted, as LiveCount<Class>.
template <typename Counted>
class LiveCount {
 public:
  static int64_t live() { return live_.load(); }

 protected:
  LiveCount() { live_++; }
  ~LiveCount() { live_--; }
  LiveCount(const LiveCount&) = delete;
  LiveCount& operator=(const LiveCount&) = delete;

 private:
  static inline std::atomic<int64_t> live_ = 0;
};

}  // namespace odmoe
