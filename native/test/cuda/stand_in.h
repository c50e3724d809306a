// What the stand-in for CUDA (native/test/simulated_cuda) tells and does for tests.
#pragma once
#include <cstdint>

namespace odmoe::cuda_test {

class StandIn {
 public:
  // Null where the device under test is a real one.
  static const StandIn* get();

  // Calls of CUDA that this thread has made.
  uint64_t calls() const { return calls_(); }
  // After so many more calls that map memory one fails, as where the device is out of memory.
  void fail_mapping(int after) const { fail_mapping_(after); }

 private:
  unsigned long long (*calls_)() = nullptr;
  void (*fail_mapping_)(long long) = nullptr;
};

}  // namespace odmoe::cuda_test
