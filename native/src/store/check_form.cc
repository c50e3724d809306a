// Checks that a view of a form that is repacked has the split, the sizes and the bytes of that form.
#include <array>
#include <optional>

#include "odmoe/error.h"
#include "repacked_matrix.h"
#include "stored_chunk.h"

namespace odmoe {
namespace {

[[noreturn]] void refuse(const TensorSource& source, const std::string& what) {
  if (!source.chunks.empty()) throw_corrupt(source.chunks.front(), what);
  throw Error(ErrorCode::model_corrupt, what + "; download the checkpoint again");
}

bool fits_columns(const TensorView& view, int64_t multiple) { return view.stored_columns % multiple == 0; }

bool has_whole_order(const TensorView& view, const GroupedCodes& codes) {
  if (codes.order_bytes == 0) return true;
  return codes.group != 0 && fits_columns(view, codes.group) && view.stored_columns <= UINT16_MAX + 1 &&
         int64_t{codes.order_bytes} * view.stored_rows >= 2 * view.stored_columns;
}

bool fits_grouped(const TensorView& view) {
  if (!is_grouped(view.stored_split)) return false;
  const GroupedCodes codes = grouped_codes(view.stored_split);
  if (codes.scales > ScaleType::fp32 || !has_whole_order(view, codes)) return false;
  switch (view.form) {
    case StoredForm::int8: return codes.bits == 8 && codes.group == 0 && !codes.zeros && codes.order_bytes == 0;
    case StoredForm::awq: return codes.bits == 4 && codes.order_bytes == 0 && view.stored_rows % 8 == 0;
    case StoredForm::pack_quantized: return view.stored_columns * codes.bits % 32 == 0;
    default: return view.stored_columns * codes.bits % 32 == 0 && view.stored_rows * codes.bits % 32 == 0;
  }
}

bool fits(const TensorView& view) {
  switch (view.form) {
    case StoredForm::planes: return true;
    case StoredForm::gguf_mxfp4: return view.stored_split == Split::mxfp4 && fits_columns(view, kMxfp4Block);
    case StoredForm::gguf_nvfp4: return view.stored_split == Split::nvfp4_multiplied && fits_columns(view, 64);
    case StoredForm::nvfp4:
      return (view.stored_split == Split::nvfp4_multiplied || view.stored_split == Split::nvfp4_divided) &&
             fits_columns(view, kNvfp4Block);
    case StoredForm::fp8_bf16:
    case StoredForm::fp8_fp16:
    case StoredForm::fp8_e8m0: return shares_scales(view.stored_split);
    default: return fits_grouped(view);
  }
}

// Bytes of a plane of a form.
struct PlaneBytes {
  uint64_t bytes = 0;
  bool optional = false;
  bool matrix_scales = false;  // FP32 scales, each for as many rows as the others: any number of them that divides the rows
};

uint64_t product(int64_t one, int64_t other) { return static_cast<uint64_t>(one) * static_cast<uint64_t>(other); }

// Absent where the form has no such plane.
std::optional<PlaneBytes> grouped_plane(const TensorView& view, int plane) {
  const GroupedCodes codes = grouped_codes(view.stored_split);
  const int64_t groups = codes.groups(view.stored_columns);
  const int64_t scale_rows =
      view.form == StoredForm::int8 ? (view.stored_rows + view.scale_block_rows - 1) / view.scale_block_rows : view.stored_rows;
  const int64_t word_rows = (view.stored_rows * codes.bits + 31) / 32;
  switch (plane) {
    case 0:
      if (view.form == StoredForm::awq) return PlaneBytes{product(view.stored_columns, view.stored_rows / 2)};
      return PlaneBytes{product(view.stored_rows, codes.code_bytes(view.stored_columns))};
    case 1: return PlaneBytes{product(scale_rows, codes.scale_bytes(view.stored_columns))};
    case 2:
      if (view.form == StoredForm::int8 || (view.form == StoredForm::pack_quantized && !codes.zeros)) return std::nullopt;
      return PlaneBytes{product(groups, word_rows * 4)};
    default:
      if (view.form == StoredForm::int8 || view.form == StoredForm::awq) return std::nullopt;
      return PlaneBytes{product(view.stored_columns, 4), true};
  }
}

std::optional<PlaneBytes> form_plane(const TensorView& view, int plane) {
  const int64_t rows = view.stored_rows;
  const int64_t columns = view.stored_columns;
  const auto of = [&](std::array<PlaneBytes, 3> planes) {
    return plane < 3 && (planes[static_cast<size_t>(plane)].bytes != 0 || planes[static_cast<size_t>(plane)].matrix_scales)
               ? std::optional(planes[static_cast<size_t>(plane)])
               : std::nullopt;
  };
  switch (view.form) {
    case StoredForm::gguf_mxfp4: return of({PlaneBytes{product(rows, columns / 32 * 17)}});
    case StoredForm::gguf_nvfp4: return of({PlaneBytes{product(rows, columns / 64 * 36)}, PlaneBytes{0, true, true}});
    case StoredForm::nvfp4:
      return of({PlaneBytes{product(rows, columns / 2)}, PlaneBytes{product(rows, columns / 16)}, PlaneBytes{0, false, true}});
    case StoredForm::fp8_bf16:
    case StoredForm::fp8_fp16:
    case StoredForm::fp8_e8m0: {
      const int64_t scale_rows = (rows + view.scale_block_rows - 1) / view.scale_block_rows;
      const int64_t width = view.form == StoredForm::fp8_e8m0 ? 1 : 2;
      const int64_t scales = plane_row_bytes(view.stored_split, 1, columns) / 4;
      return of({PlaneBytes{product(rows, columns)}, PlaneBytes{product(scale_rows, scales * width)}});
    }
    default: return grouped_plane(view, plane);
  }
}

bool has_bytes(const TensorView& view, const std::optional<PlaneBytes>& plane, uint64_t bytes) {
  if (!plane) return bytes == 0;
  if (bytes == 0) return plane->optional;
  if (!plane->matrix_scales) return bytes == plane->bytes;
  return bytes % 4 == 0 && bytes / 4 <= static_cast<uint64_t>(view.stored_rows) &&
         static_cast<uint64_t>(view.stored_rows) % (bytes / 4) == 0;
}

}  // namespace

void check_form(const TensorSource& source) {
  const TensorView& view = *source.view;
  if (!fits(view)) {
    refuse(source, "a matrix of " + std::to_string(view.stored_rows) + " x " + std::to_string(view.stored_columns) +
                       " values is in a form that cannot hold it");
  }
  if (!is_transposed(view.form)) return;
  for (int plane = 0; plane < kMaxStoredPlanes; plane++) {
    const std::optional<PlaneBytes> bytes = form_plane(view, plane);
    if (bytes && bytes->bytes > static_cast<uint64_t>(kLargestWholePlane))
      refuse(source, "a transposed matrix has more than a gibibyte");
  }
}

void check_form_bytes(const TensorSource& source) {
  std::array<uint64_t, kMaxStoredPlanes> totals{};
  for (const ChunkLocation& chunk : source.chunks) {
    uint64_t& total = totals[static_cast<size_t>(chunk.plane)];
    total = chunk.plain_bytes > INT64_MAX - total ? INT64_MAX : total + chunk.plain_bytes;
  }
  for (int plane = 0; plane < kMaxStoredPlanes; plane++) {
    if (has_bytes(*source.view, form_plane(*source.view, plane), totals[static_cast<size_t>(plane)])) continue;
    refuse(source, "the chunks of plane " + std::to_string(plane) + " have " + std::to_string(totals[static_cast<size_t>(plane)]) +
                       " bytes, which is not what the matrix has in its form");
  }
}

}  // namespace odmoe
