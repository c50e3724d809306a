// How fast experts execute from BF16 and from fixed4 weights, beside the machine's read bandwidth.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "odmoe/device.h"

namespace odmoe {

struct ExpertBenchOptions {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  // Experts of each form; they are executed in turn, so that with enough of them none is still in a cache when its turn comes again.
  int experts = 0;
  std::vector<int> tokens;
  // For each number of tokens; at least three rounds are made.
  double seconds = 0;
};

// Medians over the rounds of one number of tokens. A round reads a buffer, executes every BF16 expert once and every fixed4 expert
// once. Bytes are those of the weights as they are stored.
struct ExpertSpeed {
  int tokens = 0;
  double read_bytes_per_s = 0;
  double bf16_bytes_per_s = 0;
  double fixed4_bytes_per_s = 0;
  double fixed4_speedup = 0;  // BF16's time over fixed4's, of the same round
};

// Weights are random, normally distributed. Throws DEVICE_OUT_OF_MEMORY.
std::vector<ExpertSpeed> measure_experts(const std::shared_ptr<Backend>& backend, const ExpertBenchOptions& options);

}  // namespace odmoe
