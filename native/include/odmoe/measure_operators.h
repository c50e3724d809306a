// Measures each operator against the best speeds of the machine, at sizes of published models.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "odmoe/backend.h"

namespace odmoe {

// Medians over the rounds of one operator. A round reads a buffer, runs the fused multiply-add loop, and calls the operator on many
// inputs in turn, so that none is still in a cache at its next turn. The limits are the best results of the read and of the loop.
struct OperatorSpeed {
  std::string operation;
  std::string sizes;  // name of the model, and the sizes
  int rows = 0;
  double call_s = 0;
  // Bytes that a call must read and write, each once, divided by its time and by the read bandwidth.
  double read_share = 0;
  // Multiply-adds divided by the call's time and by the peak of the device's instruction set; a multiplication, addition,
  // comparison or division counts as one multiply-add.
  double fma_share = 0;
};

// Measures a CPU device, with its instruction set and threads: `seconds` for each operator, and at least three rounds. Throws
// DEVICE_OUT_OF_MEMORY.
std::vector<OperatorSpeed> measure_operators(const std::shared_ptr<Backend>& backend, double seconds);

}  // namespace odmoe
