// Random weights in block formats, for measurements and tests.
#pragma once
#include <cstdint>
#include <vector>

#include "odmoe/formats.h"

namespace odmoe {

// Rows of a block format in their planes, row by row.
struct BlockRows {
  Split split = Split::q8_0;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<uint8_t> planes[2];

  const uint8_t* at(int plane, int64_t row) const { return planes[plane].data() + row * plane_row_bytes(split, plane, columns); }
};

// Any codes, with finite scales of both signs where a format has signs. The rows of a matrix belong together: those of nvfp4 have one
// FP32 scale, each four of fp8_tile have equal scales, and a column order is a permutation of the columns.
BlockRows random_block_rows(Split split, int64_t rows, int64_t columns, uint32_t seed);

}  // namespace odmoe
