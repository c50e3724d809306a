// Compares all_finite with the C library, value by value, at every position and every address.
#include "odmoe/finite_values.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "native_tests.h"

namespace odmoe::test {
namespace {

constexpr uint32_t kPatterns[] = {0x00000000u, 0x80000000u, 0x00000001u, 0x807fffffu, 0x3f800000u, 0x7f7fffffu, 0xff7fffffu,
                                  0x7f800000u, 0xff800000u, 0x7f800001u, 0xffc00000u, 0x7fffffffu, 0xffffffffu};

bool finds(const std::vector<float>& values, size_t offset) {
  std::vector<uint8_t> bytes(values.size() * sizeof(float) + offset);
  if (!values.empty()) std::memcpy(bytes.data() + offset, values.data(), values.size() * sizeof(float));
  return all_finite(std::span<const uint8_t>(bytes).subspan(offset));
}

void tells_each_pattern() {
  for (const uint32_t pattern : kPatterns) {
    const auto value = std::bit_cast<float>(pattern);
    for (const size_t size : {1u, 3u, 16u, 1023u, 1024u, 1025u, 4099u}) {
      for (const size_t place : {size_t{0}, size / 2, size - 1}) {
        std::vector<float> values(size, 1.5f);
        values[place] = value;
        for (const size_t offset : {0u, 1u, 2u, 7u}) {
          check(finds(values, offset) == std::isfinite(value),
                "a value of " + std::to_string(size) + " at " + std::to_string(place));
        }
      }
    }
  }
  check(finds({}, 0), "no value is finite");
}

void refuses_a_part_of_a_value() {
  const std::vector<uint8_t> bytes(7);
  bool refused = false;
  try {
    all_finite(bytes);
  } catch (const Error& error) {
    refused = error.code() == ErrorCode::internal;
  }
  check(refused, "seven bytes are no values");
}

}  // namespace

void add_finite_values_cases(std::vector<Case>& cases) {
  cases.push_back({"finite values: each pattern, at any place and address", tells_each_pattern});
  cases.push_back({"finite values: a part of a value is refused", refuses_a_part_of_a_value});
}

}  // namespace odmoe::test
