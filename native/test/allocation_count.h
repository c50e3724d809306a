// How often the C++ heap is asked for memory, by any thread.
#pragma once

namespace odmoe::test {

// From being made until asked.
class AllocationCount {
 public:
  AllocationCount();
  ~AllocationCount();
  int count() const;
};

}  // namespace odmoe::test
