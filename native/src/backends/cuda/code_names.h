// Decides which devices the code in this library serves, by nvcc's names of the code: sm_86 is machine code, compute_90 PTX.
#pragma once
#include <algorithm>
#include <array>
#include <string>

namespace odmoe::cuda {

// Capabilities of Tegra (Jetson, Drive). Their machine code does not serve other devices of their major version, and the reverse.
inline constexpr std::array kTegraCapabilities{53, 62, 72, 87, 101, 110};

inline bool is_tegra(int capability) {
  return std::find(kTegraCapabilities.begin(), kTegraCapabilities.end(), capability) != kTegraCapabilities.end();
}

// Capabilities as 10 * major + minor. Machine code serves its own capability and later minor versions of it. PTX, which the driver
// compiles, serves every capability that is not older.
inline bool serves(const std::string& code, int capability) {
  const size_t number_at = code.find('_') + 1;
  if (number_at == 0) return false;
  const int made_for = std::stoi(code.substr(number_at));
  if (code.rfind("compute_", 0) == 0) return capability >= made_for;
  if (capability == made_for) return true;
  return capability / 10 == made_for / 10 && capability > made_for && !is_tegra(capability) && !is_tegra(made_for);
}

}  // namespace odmoe::cuda
