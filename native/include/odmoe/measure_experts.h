// Measures how fast experts execute from BF16 and from fixed4 weights, and the machine's read bandwidth.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "odmoe/device.h"

namespace odmoe {

struct ExpertBenchOptions {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  // Number of experts in each format. They are executed in turn, so that with enough experts none is still in a cache at its next
  // turn.
  int experts = 0;
  std::vector<int> tokens;
  // Duration for each number of tokens; at least three rounds are run.
  double seconds = 0;
};

// Medians over the rounds of one number of tokens. A round reads a buffer, executes every BF16 expert once and every fixed4 expert
// once. Bytes count the weights as they are stored.
struct ExpertSpeed {
  int tokens = 0;
  double read_bytes_per_s = 0;
  double bf16_bytes_per_s = 0;
  double fixed4_bytes_per_s = 0;
  double fixed4_speedup = 0;  // BF16's time divided by fixed4's, in the same round
};

// Weights are random, normally distributed. Throws DEVICE_OUT_OF_MEMORY.
std::vector<ExpertSpeed> measure_experts(const std::shared_ptr<Backend>& backend, const ExpertBenchOptions& options);

}  // namespace odmoe
