#include "weight_layout.h"

namespace odmoe::cuda {

uint64_t matrix_storage_bytes(WeightFormat format, int64_t rows, int64_t columns) {
  if (format == WeightFormat::fixed4) {
    return static_cast<uint64_t>((rows + kFixed4TileRows - 1) / kFixed4TileRows * fixed4_tile_bytes(columns));
  }
  const int64_t scales = format == WeightFormat::int8 ? rows * 4 : 0;
  return static_cast<uint64_t>(rows * row_bytes(format, columns) + scales);
}

}  // namespace odmoe::cuda
