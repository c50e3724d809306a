// Measures how small a codec makes a tensor, and how fast it is on one core.
#pragma once
#include <cstdint>
#include <span>

#include "odmoe/codec.h"

namespace odmoe {

struct CodecSpeed {
  // Stored bytes (coded exponents; uncoded signs and mantissas) divided by the bytes of the BF16 tensor.
  double ratio = 0;
  // BF16 bytes encoded or decoded per second. Decoding produces row-major values; a memcpy of them is the reference.
  double encode_bytes_per_s = 0;
  double decode_bytes_per_s = 0;
  double memcpy_bytes_per_s = 0;
};

// `values`: row-major BF16, rows of `columns`. Encodes for about a quarter of `seconds`, then decodes and copies in turns for about
// `seconds` (each at least once); the fastest round of each counts. One thread. Throws INTERNAL for values that are not whole rows.
CodecSpeed measure_codec(CodecKind codec, int level, std::span<const uint8_t> values, uint64_t columns, double seconds);

}  // namespace odmoe
