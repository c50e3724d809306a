// Whether values that came from another machine are numbers at all.
#pragma once
#include <cstdint>
#include <span>

namespace odmoe {

// Neither NaN nor an infinity is among these FP32 values, little-endian and at any address. True of no values. Throws INTERNAL for a part of
// a value.
bool all_finite(std::span<const uint8_t> fp32);

}  // namespace odmoe
