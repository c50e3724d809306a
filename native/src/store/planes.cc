// Byte planes: exponents are separated from signs and mantissas, so that each can be compressed in its own way (ZipMoE section 3).
#include <algorithm>
#include <bit>
#include <cstring>

#include "half.h"
#include "odmoe/block_values.h"
#include "odmoe/error.h"
#include "odmoe/quantized_values.h"
#include "odmoe/slices.h"
#include "odmoe/store.h"

namespace odmoe {
namespace {

uint16_t load_u16(const uint8_t* bytes) { return static_cast<uint16_t>(bytes[0] | bytes[1] << 8); }

uint32_t load_u32(const uint8_t* bytes) {
  return static_cast<uint32_t>(load_u16(bytes)) | static_cast<uint32_t>(load_u16(bytes + 2)) << 16;
}

float bf16_to_float(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

// The sign in the exponent/sign-mantissa splits is bit 7 of the second plane, above the mantissa's seven highest bits.
uint16_t high_half(uint8_t exponent, uint8_t sign_mantissa) {
  return static_cast<uint16_t>((sign_mantissa & 0x80u) << 8 | exponent << 7 | (sign_mantissa & 0x7Fu));
}

uint16_t fp16_of(uint8_t exponent, uint8_t low, uint8_t sign_high) {
  return static_cast<uint16_t>((sign_high & 4u) << 13 | (exponent & 0x1Fu) << 10 | (sign_high & 3u) << 8 | low);
}

void split_high_half(uint16_t value, uint8_t* exponent, uint8_t* sign_mantissa) {
  *exponent = static_cast<uint8_t>(value >> 7);
  *sign_mantissa = static_cast<uint8_t>((value >> 8 & 0x80) | (value & 0x7F));
}

void refuse_quantized(Split split) {
  if (is_quantized(split)) throw Error(ErrorCode::internal, "quantized weights have no row-major values that planes are cut from");
}

float mxfp4_to_float(const uint8_t* const* planes, int64_t column) {
  const int code = planes[0][column / 2] >> (column % 2 * 4) & 15;
  return kMxfp4Values[code] * kE8m0Values[planes[1][column / kMxfp4Block]];
}

}  // namespace

uint64_t staging_bytes(Split split, int64_t rows, int64_t columns) {
  uint64_t total = 0;
  for (int plane = 0; plane < plane_count(split); plane++) {
    const auto bytes = static_cast<uint64_t>(rows * plane_row_bytes(split, plane, columns));
    total += (bytes + 63) / 64 * 64;
  }
  return total;
}

std::vector<std::vector<uint8_t>> split_planes(const uint8_t* values, uint64_t bytes, Split split) {
  refuse_quantized(split);
  const auto width = static_cast<uint64_t>(value_bytes(split));
  if (bytes % width != 0) {
    throw Error(ErrorCode::internal,
                std::to_string(bytes) + " bytes are not a whole number of " + std::to_string(width) + "-byte values");
  }
  const uint64_t count = bytes / width;
  std::vector<std::vector<uint8_t>> planes(static_cast<size_t>(plane_count(split)));
  if (planes.size() == 1) {
    planes[0].assign(values, values + bytes);
    return planes;
  }
  for (size_t i = 0; i < planes.size(); i++) {
    planes[i].resize(count * static_cast<uint64_t>(plane_value_bytes(split, static_cast<int>(i))));
  }
  for (uint64_t i = 0; i < count; i++) {
    const uint8_t* value = values + i * width;
    switch (split) {
      case Split::fp16_hi8_lo8:
        planes[0][i] = value[1];
        planes[1][i] = value[0];
        break;
      case Split::fp32_e8_sm8_r16:
        split_high_half(load_u16(value + 2), &planes[0][i], &planes[1][i]);
        planes[2][2 * i] = value[0];
        planes[2][2 * i + 1] = value[1];
        break;
      case Split::fp16_e5_lo8_s1m2:
        planes[0][i] = value[1] >> 2 & 0x1F;
        planes[1][i] = value[0];
        planes[2][i] = static_cast<uint8_t>((value[1] >> 5 & 4) | (value[1] & 3));
        break;
      default: split_high_half(load_u16(value), &planes[0][i], &planes[1][i]);
    }
  }
  return planes;
}

void join_planes(uint8_t* out, const uint8_t* const* planes, Split split, uint64_t count) {
  refuse_quantized(split);
  if (plane_count(split) == 1) {
    std::copy_n(planes[0], count * static_cast<uint64_t>(value_bytes(split)), out);
    return;
  }
  for (uint64_t i = 0; i < count; i++) {
    uint16_t half = 0;
    switch (split) {
      case Split::fp16_hi8_lo8: half = static_cast<uint16_t>(planes[0][i] << 8 | planes[1][i]); break;
      case Split::fp16_e5_lo8_s1m2: half = fp16_of(planes[0][i], planes[1][i], planes[2][i]); break;
      case Split::fp32_e8_sm8_r16:
        *out++ = planes[2][2 * i];
        *out++ = planes[2][2 * i + 1];
        half = high_half(planes[0][i], planes[1][i]);
        break;
      default: half = high_half(planes[0][i], planes[1][i]);
    }
    *out++ = static_cast<uint8_t>(half & 0xFF);
    *out++ = static_cast<uint8_t>(half >> 8);
  }
}

void planes_to_floats(float* out, const uint8_t* const* planes, Split split, int64_t count) {
  if (is_blocks(split)) return block_row_to_floats(split, planes, count, out);
  // A row of fp8 has the bytes of a row of fp8_tile.
  if (split == Split::fp8) return block_row_to_floats(Split::fp8_tile, planes, count, out);
  if (slice_bits(split) != 0) return slices_to_floats(split, SliceReading::both, planes[0], planes[1], count, out);
  for (int64_t i = 0; i < count; i++) {
    switch (split) {
      case Split::none_bf16: out[i] = bf16_to_float(load_u16(planes[0] + 2 * i)); break;
      case Split::none_fp16: out[i] = fp16_to_float(load_u16(planes[0] + 2 * i)); break;
      case Split::none_fp32: out[i] = std::bit_cast<float>(load_u32(planes[0] + 4 * i)); break;
      case Split::bf16_e8_sm8: out[i] = bf16_to_float(high_half(planes[0][i], planes[1][i])); break;
      case Split::fp16_hi8_lo8: out[i] = fp16_to_float(static_cast<uint16_t>(planes[0][i] << 8 | planes[1][i])); break;
      case Split::fp16_e5_lo8_s1m2: out[i] = fp16_to_float(fp16_of(planes[0][i], planes[1][i], planes[2][i])); break;
      case Split::fp32_e8_sm8_r16:
        out[i] =
            std::bit_cast<float>(static_cast<uint32_t>(high_half(planes[0][i], planes[1][i])) << 16 | load_u16(planes[2] + 2 * i));
        break;
      case Split::mxfp4: out[i] = mxfp4_to_float(planes, i); break;
      default: break;  // above: the weights of a row share scales
    }
  }
}

}  // namespace odmoe
