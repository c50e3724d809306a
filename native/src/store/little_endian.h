// Numbers in files are little-endian, and so are all machines on which this runs.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>

static_assert(std::endian::native == std::endian::little);

namespace odmoe {

template <typename Number>
inline Number load_number(const uint8_t* bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

template <typename Number>
inline void store_number(uint8_t* bytes, Number number) {
  std::memcpy(bytes, &number, sizeof number);
}

}  // namespace odmoe
