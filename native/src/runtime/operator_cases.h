// The cases of measure_operators: each operator at sizes of published models, and the least cost of a call.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "odmoe/device.h"

namespace odmoe {

struct OperatorCase {
  std::string operation;
  std::string sizes;
  int rows = 0;
  // Per call: bytes that it must read and write, and multiply-adds.
  double bytes = 0;
  double multiply_adds = 0;
  // Number of calls with separate inputs, and the function for one of them.
  int64_t turns = 1;
  std::function<void(int64_t turn)> run;
};

// Bytes that the turns of one operator use together: far more than caches hold.
inline constexpr int64_t kTurnBytes = int64_t{256} << 20;

// Memory from which cases cut their inputs and outputs; the data of a call is behind that of the call before.
struct OperatorPools {
  explicit OperatorPools(const std::shared_ptr<Backend>& backend);

  std::shared_ptr<Backend> backend;
  DeviceMemory inputs;   // values within +-0.1, which no operator changes
  DeviceMemory outputs;  // the same at first
};

// Cases are made one after the other, because some have their own weights.
using OperatorCaseMaker = std::function<OperatorCase(const OperatorPools&)>;
std::vector<OperatorCaseMaker> element_cases();
std::vector<OperatorCaseMaker> norm_cases();
std::vector<OperatorCaseMaker> mixer_cases();
std::vector<OperatorCaseMaker> product_cases();

}  // namespace odmoe
