// Measures how fast experts execute from weights of several forms, and the machine's read bandwidth.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "odmoe/device.h"

namespace odmoe {

// A form of weights: BF16 ones, as bf16, fixed4 or slices of them; or random ones in a block format.
struct ExpertForm {
  WeightFormat format = WeightFormat::bf16;
  bool upper_alone = false;  // sliced formats: only the upper slice is stored and read
};

struct ExpertBenchOptions {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  std::vector<ExpertForm> forms;  // at least one
  // Number of experts in each form. They are executed in turn, so that with enough experts none is still in a cache at its next
  // turn.
  int experts = 0;
  std::vector<int> tokens;
  // Duration for each number of tokens; at least three rounds are run.
  double seconds = 0;
};

struct ExpertFormSpeed {
  double bytes_per_s = 0;    // of the weights as they are stored
  double weights_per_s = 0;  // numbers
  double speedup = 0;        // the time of the first form divided by this form's, in the same round
};

// Medians over the rounds of one number of tokens. A round reads a buffer, and executes every expert of the first form once, then every
// expert of the second form, and so on.
struct ExpertSpeed {
  int tokens = 0;
  double read_bytes_per_s = 0;
  std::vector<ExpertFormSpeed> forms;
};

// Weights are random: BF16 ones normally distributed, block formats with any codes. Throws DEVICE_OUT_OF_MEMORY, and REQUEST_INVALID
// for sizes that are no whole blocks.
std::vector<ExpertSpeed> measure_experts(const std::shared_ptr<Backend>& backend, const ExpertBenchOptions& options);

}  // namespace odmoe
