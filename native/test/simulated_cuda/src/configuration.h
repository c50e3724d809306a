// Settings of the simulated machine from the environment (README.md lists the variables). Read once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver_types.h"

namespace odmoe_simulated {

struct Configuration {
  int devices = 1;
  size_t memory_bytes = size_t{2} << 30;
  size_t context_bytes = size_t{64} << 20;
  int major = 8, minor = 6;
  bool integrated = false;
  bool vmm = true;
  int driver_version = 13000;
  uint64_t seed = 1;  // 0: operations in the order of their issue
  // Faults: the number (from 0) of the kernel launch or allocation that fails; -1: none.
  cudaError_t lost_error = cudaErrorLaunchFailure;
  int64_t lost_after = -1;
  bool no_image = false;
  int64_t out_of_memory_at = -1;
};

const Configuration& configuration();

}  // namespace odmoe_simulated
