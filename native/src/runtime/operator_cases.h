// What measure_operators measures: each operator at sizes of published models, and what a call of it costs at least.
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
  // Of one call: bytes that it must read and write, and multiply-adds.
  double bytes = 0;
  double multiply_adds = 0;
  // Calls whose inputs lie apart, and one of them.
  int64_t turns = 1;
  std::function<void(int64_t turn)> run;
};

// Bytes that the calls of one operator take turns over: far more than caches hold.
inline constexpr int64_t kTurnBytes = int64_t{256} << 20;

// Memory that cases cut their inputs and outputs from; what a call takes lies behind what the call before took.
struct OperatorPools {
  explicit OperatorPools(const std::shared_ptr<Backend>& backend);

  std::shared_ptr<Backend> backend;
  DeviceMemory inputs;   // values within +-0.1, which no operator changes
  DeviceMemory outputs;  // the same at first
};

// Made one after the other, as some have weights of their own.
using OperatorCaseMaker = std::function<OperatorCase(const OperatorPools&)>;
std::vector<OperatorCaseMaker> element_cases();
std::vector<OperatorCaseMaker> norm_cases();
std::vector<OperatorCaseMaker> mixer_cases();
std::vector<OperatorCaseMaker> product_cases();

}  // namespace odmoe
