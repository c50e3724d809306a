#include "quantized_weights.h"

#include <algorithm>

#include "odmoe/block_values.h"
#include "odmoe/slices.h"

namespace odmoe {
namespace {

constexpr uint8_t kNoE8m0 = 255;
// The largest magnitude of a code is 6, and 6 * 2^126 is too large for BF16; so is 2 * 2^127.
constexpr uint8_t kLeastLargeScale = 253;

const char* mxfp4_fault(const uint8_t* const* planes, int64_t columns) {
  const int64_t blocks = plane_row_bytes(Split::mxfp4, 1, columns);
  if (*std::max_element(planes[1], planes[1] + blocks) < kLeastLargeScale) return nullptr;
  for (int64_t block = 0; block < blocks; block++) {
    const uint8_t scale = planes[1][block];
    if (scale < kLeastLargeScale) continue;
    if (scale == kNoE8m0) return "an MXFP4 scale is not a number";
    const int largest_code = scale == kLeastLargeScale ? 5 : 3;
    const int64_t end = std::min((block + 1) * kMxfp4Block, columns);
    for (int64_t i = block * kMxfp4Block; i < end; i++) {
      if ((planes[0][i / 2] >> (i % 2 * 4) & 7) > largest_code) return "an MXFP4 weight is too large for a BF16";
    }
  }
  return nullptr;
}

}  // namespace

const char* quantized_fault(Split split, const uint8_t* const* planes, int64_t columns) {
  if (split == Split::mxfp4) return mxfp4_fault(planes, columns);
  // A row of fp8 has the bytes of a row of fp8_tile.
  if (split == Split::fp8) return block_row_fault(Split::fp8_tile, planes, columns);
  if (is_blocks(split)) return block_row_fault(split, planes, columns);
  return slice_bits(split) != 0 ? slices_fault(split, planes[0], planes[1], columns) : nullptr;
}

const char* quantized_fault(Split split, const uint8_t* const* planes, int64_t rows, int64_t columns) {
  if (!is_quantized(split)) return nullptr;
  for (int64_t row = 0; row < rows; row++) {
    const auto row_of = [&](int plane) {
      return planes[plane] == nullptr ? nullptr : planes[plane] + row * plane_row_bytes(split, plane, columns);
    };
    const uint8_t* const row_planes[] = {row_of(0), row_of(1)};
    const char* const fault = quantized_fault(split, row_planes, columns);
    if (fault != nullptr) return fault;
  }
  return nullptr;
}

}  // namespace odmoe
