#include "weight_layout.h"

#include "block_layout.h"

namespace odmoe::cuda {

uint64_t matrix_storage_bytes(WeightFormat format, int64_t rows, int64_t columns) {
  if (is_blocks(format)) return block_storage_bytes(format, rows, columns);
  if (format == WeightFormat::fixed4) {
    return static_cast<uint64_t>((rows + kFixed4TileRows - 1) / kFixed4TileRows * fixed4_tile_bytes(columns));
  }
  if (slice_bits(format) != 0) {
    const int64_t groups = rows * steps_of(columns);
    return static_cast<uint64_t>(slice_zeros_offset(slice_bits(format), groups) + groups);
  }
  const int64_t scales = format == WeightFormat::int8 ? rows * 4 : 0;
  return static_cast<uint64_t>(rows * row_bytes(format, columns) + scales);
}

uint64_t lower_slice_storage_bytes(WeightFormat format, int64_t rows, int64_t columns) {
  return static_cast<uint64_t>(slice_scales_offset(slice_bits(format), rows * steps_of(columns)));
}

}  // namespace odmoe::cuda
