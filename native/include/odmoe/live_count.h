// Counts the objects of a class in this process; tests use it to show that none is left.
#pragma once
#include <atomic>
#include <cstdint>

namespace odmoe {

// Base class LiveCount<Class> of a class whose objects are counted.
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
