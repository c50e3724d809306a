#include "odmoe/block_values.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "gguf_blocks.h"
#include "half.h"
#include "odmoe/quantized_values.h"

namespace odmoe {
namespace {

constexpr uint8_t kNoE8m0 = 0xff;
constexpr uint8_t kNoE4m3 = 0x7f;
constexpr float kLargestE4m3 = 448.0f;

float load_float(const uint8_t* bytes) {
  float value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

uint16_t load_u16(const uint8_t* bytes) { return static_cast<uint16_t>(bytes[0] | bytes[1] << 8); }

float scale_value(ScaleType type, const uint8_t* scales, int64_t group) {
  if (type == ScaleType::fp32) return load_float(scales + 4 * group);
  const uint16_t bits = load_u16(scales + 2 * group);
  return type == ScaleType::fp16 ? fp16_to_float(bits) : std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Code number `i` of codes that follow one another.
int code_at(const uint8_t* codes, int bits, int64_t i) { return bits == 8 ? codes[i] : codes[i / 2] >> (i % 2 * 4) & 15; }

void grouped_values(const GroupedCodes& codes, const uint8_t* const* planes, int64_t columns, float* out) {
  const uint8_t* const zeros = planes[1] + codes.scale_bytes(columns);
  const int64_t group_columns = codes.group == 0 ? columns : codes.group;
  for (int64_t i = 0; i < columns; i++) {
    const int64_t group = i / group_columns;
    const int zero = codes.zeros ? code_at(zeros, codes.bits, group) : 1 << (codes.bits - 1);
    out[i] = static_cast<float>(code_at(planes[0], codes.bits, i) - zero) * scale_value(codes.scales, planes[1], group);
  }
}

void nvfp4_values(bool divided, const uint8_t* const* planes, int64_t columns, float* out) {
  const float global = load_float(planes[1] + (columns + kNvfp4Block - 1) / kNvfp4Block);
  for (int64_t i = 0; i < columns; i++) {
    const float value = kMxfp4Values[code_at(planes[0], 4, i)] * kE4m3Values[planes[1][i / kNvfp4Block]];
    out[i] = divided ? value / global : value * global;
  }
}

const char* e4m3_codes_fault(const uint8_t* codes, int64_t columns) {
  uint8_t none = 0;
  for (int64_t i = 0; i < columns; i++) none |= static_cast<uint8_t>((codes[i] & 0x7f) == kNoE4m3);
  return none != 0 ? "an FP8 weight is not a number" : nullptr;
}

const char* fp8_scale_fault(float scale) {
  if (!(scale >= 0.0f)) return "an FP8 scale is negative or not a number";
  return scale * kLargestE4m3 > std::numeric_limits<float>::max() ? "an FP8 scale is too large" : nullptr;
}

const char* fp8_fault(const uint8_t* const* planes, int64_t columns, int64_t scales) {
  if (const char* const fault = e4m3_codes_fault(planes[0], columns)) return fault;
  for (int64_t i = 0; i < scales; i++) {
    if (const char* const fault = fp8_scale_fault(load_float(planes[1] + 4 * i))) return fault;
  }
  return nullptr;
}

const char* mxfp8_fault(const uint8_t* const* planes, int64_t columns) {
  if (const char* const fault = e4m3_codes_fault(planes[0], columns)) return fault;
  const int64_t scales = (columns + kMxfp8Block - 1) / kMxfp8Block;
  for (int64_t i = 0; i < scales; i++) {
    if (planes[1][i] == kNoE8m0) return "an MXFP8 scale is not a number";
    if (planes[1][i] > 127 + 118) return "an MXFP8 scale is too large";
  }
  return nullptr;
}

const char* nvfp4_fault(bool divided, const uint8_t* const* planes, int64_t columns) {
  const int64_t scales = (columns + kNvfp4Block - 1) / kNvfp4Block;
  for (int64_t i = 0; i < scales; i++) {
    if (planes[1][i] >= kNoE4m3) return "an NVFP4 scale is negative or not a number";
  }
  const float global = load_float(planes[1] + scales);
  const float most = 6.0f * kLargestE4m3;
  if (!(global >= 0.0f) || !std::isfinite(divided ? most / global : most * global)) return "an NVFP4 matrix's scale is not valid";
  return nullptr;
}

const char* grouped_fault(const GroupedCodes& codes, const uint8_t* const* planes, int64_t columns) {
  const float most = codes.bits == 4 ? 15.0f : 255.0f;
  for (int64_t group = 0; group < codes.groups(columns); group++) {
    if (!std::isfinite(most * scale_value(codes.scales, planes[1], group))) return "a scale of a group of codes is not valid";
  }
  return nullptr;
}

}  // namespace

void block_row_to_floats(Split split, const uint8_t* const* planes, int64_t columns, float* out) {
  if (block_shape(split).columns != 0) return gguf_row_to_floats(split, planes[0], columns, out);
  switch (kind_of(split)) {
    case Split::fp8_row:
      for (int64_t i = 0; i < columns; i++) out[i] = kE4m3Values[planes[0][i]] * load_float(planes[1]);
      return;
    case Split::fp8_tile:
      for (int64_t i = 0; i < columns; i++) out[i] = kE4m3Values[planes[0][i]] * load_float(planes[1] + i / kFp8Block * 4);
      return;
    case Split::mxfp8:
      for (int64_t i = 0; i < columns; i++) out[i] = kE4m3Values[planes[0][i]] * kE8m0Values[planes[1][i / kMxfp8Block]];
      return;
    case Split::nvfp4_multiplied: return nvfp4_values(false, planes, columns, out);
    case Split::nvfp4_divided: return nvfp4_values(true, planes, columns, out);
    default: return grouped_values(grouped_codes(split), planes, columns, out);
  }
}

const char* block_row_fault(Split split, const uint8_t* const* planes, int64_t columns) {
  if (block_shape(split).columns != 0) return gguf_row_fault(split, planes[0], columns);
  switch (kind_of(split)) {
    case Split::fp8_row: return fp8_fault(planes, columns, 1);
    case Split::fp8_tile: return fp8_fault(planes, columns, (columns + kFp8Block - 1) / kFp8Block);
    case Split::mxfp8: return mxfp8_fault(planes, columns);
    case Split::nvfp4_multiplied: return nvfp4_fault(false, planes, columns);
    case Split::nvfp4_divided: return nvfp4_fault(true, planes, columns);
    default: return grouped_fault(grouped_codes(split), planes, columns);
  }
}

}  // namespace odmoe
