// Functions of the stand-in for CUDA (native/test/simulated_cuda) that tests use.
#pragma once
#include <cstdint>
#include <string>

#include "cuda_tests.h"

namespace odmoe::cuda_test {

class StandIn {
 public:
  // Null where the device under test is a real one.
  static const StandIn* get();

  // Calls of CUDA that this thread has made.
  uint64_t calls() const { return calls_(); }
  // Throws Failure if act() calls CUDA on this thread: code on a daemon's event loop must not wait for the device. On a real device
  // calls are not counted.
  template <typename Act>
  static void without_calls(const std::string& what, Act act) {
    const StandIn* const stand_in = get();
    const uint64_t before = stand_in == nullptr ? 0 : stand_in->calls();
    act();
    expect(stand_in == nullptr || stand_in->calls() == before, "CUDA is called where " + what);
  }
  // After `after` more calls that map memory one call fails, as if the device were out of memory.
  void fail_mapping(int after) const { fail_mapping_(after); }

 private:
  unsigned long long (*calls_)() = nullptr;
  void (*fail_mapping_)(long long) = nullptr;
};

}  // namespace odmoe::cuda_test
