// Weights that are shipped as codes with scales, and their values, computed one by one.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "odmoe/backend.h"

namespace odmoe::test {

struct QuantizedWeights {
  Split split = Split::mxfp4;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<uint8_t> planes[2];

  // The row's planes, for write_rows.
  std::vector<const uint8_t*> at(int64_t row) const;
  // Row-major values, as arithmetic.h defines them.
  std::vector<float> values() const;
};

// Weights with every code; the scales are usual ones, or have all allowed sizes.
enum class Scales : uint8_t { usual, extreme };
QuantizedWeights random_quantized_weights(uint32_t seed, Split split, int64_t rows, int64_t columns, Scales scales);

}  // namespace odmoe::test
