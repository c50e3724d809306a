// How small a codec makes a tensor, and how fast it is on one core.
#pragma once
#include <cstdint>
#include <span>

#include "odmoe/codec.h"

namespace odmoe {

struct CodecSpeed {
  // Stored bytes (coded exponents, signs and mantissas as they are) over the bytes of the BF16 tensor.
  double ratio = 0;
  // Of BF16 taken or given. Decoding ends in row-major values; copying them with memcpy is the yardstick.
  double encode_bytes_per_s = 0;
  double decode_bytes_per_s = 0;
  double memcpy_bytes_per_s = 0;
};

// `values`: row-major BF16, rows of `columns`. Decodes and copies in turns for about `seconds`, after encoding for about a quarter of it
// (each at least once); of each the fastest round counts. One thread. Throws INTERNAL for values that are not whole rows.
CodecSpeed measure_codec(CodecKind codec, int level, std::span<const uint8_t> values, uint64_t columns, double seconds);

}  // namespace odmoe
