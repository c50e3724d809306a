#include "block_layout.h"

#include <algorithm>

namespace odmoe::cuda {
namespace {

BlockForm grouped_form(const GroupedCodes& codes) {
  BlockForm form;
  form.low_bits = codes.bits;
  form.scaling = codes.scales == ScaleType::fp32 ? Scaling::fp32 : codes.scales == ScaleType::fp16 ? Scaling::half : Scaling::bf16;
  form.scale_steps = codes.group / kLanes;
  form.scale_bytes = codes.scales == ScaleType::fp32 ? 4 : 2;
  form.zero = 1 << (codes.bits - 1);
  form.zero_bits = codes.zeros ? codes.bits : 0;
  form.order_bytes = codes.order_bytes;
  return form;
}

BlockForm form_of(int low_bits, int high_bits, Scaling scaling, int scale_steps, int scale_bytes, int zero = 0) {
  BlockForm form;
  form.low_bits = low_bits;
  form.high_bits = high_bits;
  form.scaling = scaling;
  form.scale_steps = scale_steps;
  form.scale_bytes = scale_bytes;
  form.zero = zero;
  return form;
}

BlockForm nvfp4_form(Scaling scaling) {
  BlockForm form = form_of(4, 0, scaling, 1, 2);
  form.row_factors = true;
  return form;
}

BlockForm fp8_tile_form() {
  BlockForm form = form_of(8, 0, Scaling::fp32, kFp8ScaleSteps, 4);
  form.tile_rows = kTileScaleRows;
  return form;
}

}  // namespace

BlockForm block_form(WeightFormat format) {
  switch (kind_of(format)) {
    case WeightFormat::fp8_row: return form_of(8, 0, Scaling::fp32, 0, 4);
    case WeightFormat::fp8_tile: return fp8_tile_form();
    case WeightFormat::mxfp8: return form_of(8, 0, Scaling::e8m0, 1, 1);
    case WeightFormat::nvfp4_multiplied: return nvfp4_form(Scaling::nvfp4_multiplied);
    case WeightFormat::nvfp4_divided: return nvfp4_form(Scaling::nvfp4_divided);
    case WeightFormat::q4_0: return form_of(4, 0, Scaling::half, 1, 2, 8);
    case WeightFormat::q4_1: return form_of(4, 0, Scaling::half_pair, 1, 4);
    case WeightFormat::q5_0: return form_of(4, 1, Scaling::half, 1, 2, 16);
    case WeightFormat::q5_1: return form_of(4, 1, Scaling::half_pair, 1, 4);
    case WeightFormat::q8_0: return form_of(8, 0, Scaling::half, 1, 2, 128);
    case WeightFormat::q2_k: return form_of(2, 0, Scaling::q2_k, 8, 20);
    case WeightFormat::q3_k: return form_of(2, 1, Scaling::q3_k, 8, 14, 4);
    case WeightFormat::q4_k: return form_of(4, 0, Scaling::q4_k, 8, 16);
    case WeightFormat::q5_k: return form_of(4, 1, Scaling::q4_k, 8, 16);
    case WeightFormat::q6_k: return form_of(4, 2, Scaling::q6_k, 8, 18, 32);
    case WeightFormat::iq4_nl: return form_of(4, 0, Scaling::half, 1, 2);
    case WeightFormat::iq4_xs: return form_of(4, 0, Scaling::iq4_xs, 8, 8);
    default: return grouped_form(grouped_codes(format));
  }
}

uint64_t block_storage_bytes(WeightFormat format, int64_t rows, int64_t columns) {
  const BlockForm form = block_form(format);
  const BlockPlaces places = block_places(form, rows, steps_of(columns));
  // The order is read whole, however short its pieces are.
  const int64_t order = form.order_bytes == 0 ? 0 : std::max(rows * form.order_bytes, 2 * columns);
  return static_cast<uint64_t>(places.order + order);
}

}  // namespace odmoe::cuda
