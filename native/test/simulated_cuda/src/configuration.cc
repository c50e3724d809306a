#include "configuration.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace odmoe_simulated {
namespace {

[[noreturn]] void refuse(const char* name, const char* text) {
  std::fprintf(stderr, "simulated CUDA: %s=%s is not understood; see native/test/simulated_cuda/README.md\n", name, text);
  std::abort();
}

// A whole number from the environment, `otherwise` where the variable is not set.
template <typename T>
T number(const char* name, T otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const int64_t value = std::strtoll(text, &end, 10);
  if (*end != '\0' || value < 0) refuse(name, text);
  return static_cast<T>(value);
}

void read_fault(Configuration& to) {
  const char* name = "ODMOE_SIMULATED_CUDA_FAULT";
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return;
  const std::string fault(text);
  const size_t colon = fault.find(':');
  const std::string kind = fault.substr(0, colon);
  const int64_t count = colon == std::string::npos ? -1 : std::strtoll(fault.c_str() + colon + 1, nullptr, 10);
  if (kind == "no-image") {
    to.no_image = true;
  } else if (kind == "lost" && count >= 0) {
    to.lost_after = count;
  } else if (kind == "illegal-address" && count >= 0) {
    to.lost_after = count;
    to.lost_error = cudaErrorIllegalAddress;
  } else if (kind == "gone" && count >= 0) {
    to.lost_after = count;
    to.lost_error = cudaErrorNoDevice;
  } else if (kind == "out-of-memory" && count >= 1) {
    to.out_of_memory_at = count - 1;
  } else {
    refuse(name, text);
  }
}

Configuration read() {
  Configuration to;
  to.devices = number("ODMOE_SIMULATED_CUDA_DEVICES", to.devices);
  to.memory_bytes = number("ODMOE_SIMULATED_CUDA_MEMORY_BYTES", to.memory_bytes);
  to.context_bytes = number("ODMOE_SIMULATED_CUDA_CONTEXT_BYTES", to.context_bytes);
  if (const char* text = std::getenv("ODMOE_SIMULATED_CUDA_CAPABILITY")) {
    if (std::sscanf(text, "%d.%d", &to.major, &to.minor) != 2) refuse("ODMOE_SIMULATED_CUDA_CAPABILITY", text);
  }
  to.integrated = number("ODMOE_SIMULATED_CUDA_INTEGRATED", 0) != 0;
  to.vmm = number("ODMOE_SIMULATED_CUDA_VMM", 1) != 0;
  to.driver_version = number("ODMOE_SIMULATED_CUDA_DRIVER_VERSION", to.driver_version);
  to.seed = number("ODMOE_SIMULATED_CUDA_SEED", uint64_t{1}) + 1;
  if (const char* order = std::getenv("ODMOE_SIMULATED_CUDA_ORDER")) {
    if (std::string(order) == "issue") {
      to.seed = 0;
    } else if (std::string(order) != "random") {
      refuse("ODMOE_SIMULATED_CUDA_ORDER", order);
    }
  }
  read_fault(to);
  return to;
}

}  // namespace

const Configuration& configuration() {
  static const Configuration configuration = read();
  return configuration;
}

}  // namespace odmoe_simulated
