// A check that values from another machine are finite numbers.
#pragma once
#include <cstdint>
#include <span>

namespace odmoe {

// True if none of these FP32 values (little-endian, at any address) is NaN or infinite; true for an empty list. Throws INTERNAL for
// a part of a value.
bool all_finite(std::span<const uint8_t> fp32);

}  // namespace odmoe
