// A range of a device's memory.
#pragma once
#include <cstdint>

namespace odmoe {

struct DeviceBuffer {
  void* data = nullptr;
  uint64_t bytes = 0;
};

}  // namespace odmoe
