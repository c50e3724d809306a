// Counts allocations from the C++ heap, by any thread.
#pragma once

namespace odmoe::test {

// Counts from its construction until the query.
class AllocationCount {
 public:
  AllocationCount();
  ~AllocationCount();
  int count() const;
};

}  // namespace odmoe::test
