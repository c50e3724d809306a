#include "odmoe/finite_values.h"

#include <algorithm>
#include <cstring>

#include "odmoe/error.h"

namespace odmoe {
namespace {

// The exponent bits that only infinities and NaNs have.
constexpr uint32_t kExponent = 0x7f800000u;
// Values between two checks of the result: enough that the inner loop needs no branches.
constexpr size_t kBlockValues = 1024;

// Equality comparisons and an OR: every instruction set has these for vectors.
bool any_beyond(const uint8_t* bytes, size_t count) {
  uint32_t beyond = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t value = 0;
    std::memcpy(&value, bytes + i * sizeof(value), sizeof(value));
    beyond |= (value & kExponent) == kExponent ? 1u : 0u;
  }
  return beyond != 0;
}

}  // namespace

bool all_finite(std::span<const uint8_t> fp32) {
  if (fp32.size() % sizeof(uint32_t) != 0) throw Error(ErrorCode::internal, "FP32 values have four bytes each");
  const size_t values = fp32.size() / sizeof(uint32_t);
  for (size_t first = 0; first < values; first += kBlockValues) {
    if (any_beyond(fp32.data() + first * sizeof(uint32_t), std::min(kBlockValues, values - first))) return false;
  }
  return true;
}

}  // namespace odmoe
