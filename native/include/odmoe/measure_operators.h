// How near each operator comes to what the machine gives, at sizes of published models.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "odmoe/backend.h"

namespace odmoe {

// Medians over the rounds of one operator. A round reads a buffer, runs the fused multiply-add loop, and calls the operator in turn on
// inputs so many that none is in a cache when its turn comes again. Limits are what reading and the loop have given at best.
struct OperatorSpeed {
  std::string operation;
  std::string sizes;  // whose, and which
  int rows = 0;
  double call_s = 0;
  // Bytes that a call must read and write, each once, over its time and the read bandwidth.
  double read_share = 0;
  // Multiply-adds over its time and the peak of the device's instruction set; a multiplication, addition, comparison or division counts
  // as one.
  double fma_share = 0;
};

// Of a CPU device, with its instruction set and threads; `seconds` for each operator, and at least three rounds. Throws
// DEVICE_OUT_OF_MEMORY.
std::vector<OperatorSpeed> measure_operators(const std::shared_ptr<Backend>& backend, double seconds);

}  // namespace odmoe
