#include "random_block_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "odmoe/error.h"

namespace odmoe {
namespace {

using Random = std::mt19937;

void fill_any(Random& random, uint8_t* bytes, int64_t count) {
  for (int64_t i = 0; i < count; i++) bytes[i] = static_cast<uint8_t>(random());
}

// E4M3 bytes; neither is a NaN.
void fill_e4m3(Random& random, uint8_t* bytes, int64_t count) {
  fill_any(random, bytes, count);
  for (int64_t i = 0; i < count; i++) {
    if ((bytes[i] & 0x7f) == 0x7f) bytes[i] = 0x80;
  }
}

void put_half(Random& random, uint8_t* to) {
  const uint32_t bits = (random() & 0x83ffU) | (2 + random() % 8) << 10;
  to[0] = static_cast<uint8_t>(bits);
  to[1] = static_cast<uint8_t>(bits >> 8);
}

void put_bf16(Random& random, uint8_t* to) {
  const uint32_t bits = (random() & 0x807fU) | (113 + random() % 8) << 7;
  to[0] = static_cast<uint8_t>(bits);
  to[1] = static_cast<uint8_t>(bits >> 8);
}

void put_float(Random& random, uint8_t* to, bool any_sign) {
  const uint32_t bits = (random() & (any_sign ? 0x807fffffU : 0x007fffffU)) | (113 + random() % 8) << 23;
  std::memcpy(to, &bits, 4);
}

// The places of a GGUF block's FP16 numbers.
std::vector<int> half_places(Split split) {
  switch (kind_of(split)) {
    case Split::q4_1:
    case Split::q5_1:
    case Split::q4_k:
    case Split::q5_k: return {0, 2};
    case Split::q2_k: return {80, 82};
    case Split::q3_k: return {108};
    case Split::q6_k: return {208};
    default: return {0};
  }
}

void fill_gguf(Random& random, BlockRows& to) {
  const BlockShape shape = block_shape(to.split);
  const std::vector<int> places = half_places(to.split);
  std::vector<uint8_t>& bytes = to.planes[0];
  fill_any(random, bytes.data(), static_cast<int64_t>(bytes.size()));
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(shape.bytes)) {
    for (const int place : places) put_half(random, bytes.data() + at + place);
  }
}

void fill_grouped_row(Random& random, const GroupedCodes& codes, int64_t columns, uint8_t* to) {
  const int size = codes.scales == ScaleType::fp32 ? 4 : 2;
  for (int64_t i = 0; i < codes.groups(columns); i++, to += size) {
    if (codes.scales == ScaleType::bf16) put_bf16(random, to);
    if (codes.scales == ScaleType::fp16) put_half(random, to);
    if (codes.scales == ScaleType::fp32) put_float(random, to, true);
  }
  fill_any(random, to, codes.zero_bytes(columns));
  if (codes.zeros && codes.bits == 4 && codes.groups(columns) % 2 != 0) to[codes.zero_bytes(columns) - 1] &= 15;
}

void fill_order(Random& random, BlockRows& to) {
  const GroupedCodes codes = grouped_codes(to.split);
  if (codes.order_bytes == 0) return;
  std::vector<uint16_t> order(static_cast<size_t>(to.columns));
  std::iota(order.begin(), order.end(), uint16_t{0});
  std::shuffle(order.begin(), order.end(), random);
  std::vector<uint8_t> bytes(static_cast<size_t>(to.rows * codes.order_bytes));
  if (bytes.size() < 2 * order.size()) throw Error(ErrorCode::internal, "the pieces of a column order hold not all of it");
  for (size_t i = 0; i < order.size(); i++) {
    bytes[2 * i] = static_cast<uint8_t>(order[i]);
    bytes[2 * i + 1] = static_cast<uint8_t>(order[i] >> 8);
  }
  const int64_t row_bytes = plane_row_bytes(to.split, 1, to.columns);
  for (int64_t row = 0; row < to.rows; row++) {
    std::memcpy(to.planes[1].data() + (row + 1) * row_bytes - codes.order_bytes, bytes.data() + row * codes.order_bytes,
                static_cast<size_t>(codes.order_bytes));
  }
}

void fill_nvfp4(Random& random, BlockRows& to) {
  const int64_t row_bytes = plane_row_bytes(to.split, 1, to.columns);
  uint8_t global[4];
  put_float(random, global, false);
  for (int64_t row = 0; row < to.rows; row++) {
    uint8_t* const scales = to.planes[1].data() + row * row_bytes;
    for (int64_t i = 0; i < row_bytes - 4; i++) scales[i] = static_cast<uint8_t>(random() % 0x7f);
    std::memcpy(scales + row_bytes - 4, global, 4);
  }
}

void fill_fp8_scales(Random& random, BlockRows& to) {
  const int64_t row_bytes = plane_row_bytes(to.split, 1, to.columns);
  for (int64_t row = 0; row < to.rows; row++) {
    uint8_t* const scales = to.planes[1].data() + row * row_bytes;
    const bool repeats = to.split == Split::fp8_tile && row % kTileScaleRows != 0;
    if (repeats) std::memcpy(scales, scales - row_bytes, static_cast<size_t>(row_bytes));
    if (repeats) continue;
    for (int64_t i = 0; i < row_bytes; i += 4) put_float(random, scales + i, false);
  }
}

}  // namespace

BlockRows random_block_rows(Split split, int64_t rows, int64_t columns, uint32_t seed) {
  Random random(seed);
  BlockRows to{split, rows, columns, {}};
  for (int plane = 0; plane < plane_count(split); plane++) {
    to.planes[plane].resize(static_cast<size_t>(rows * plane_row_bytes(split, plane, columns)));
  }
  if (block_shape(split).columns != 0) {
    fill_gguf(random, to);
    return to;
  }
  uint8_t* const codes = to.planes[0].data();
  const auto code_bytes = static_cast<int64_t>(to.planes[0].size());
  switch (kind_of(split)) {
    case Split::fp8_row:
    case Split::fp8_tile:
      fill_e4m3(random, codes, code_bytes);
      fill_fp8_scales(random, to);
      break;
    case Split::mxfp8:
      fill_e4m3(random, codes, code_bytes);
      for (uint8_t& byte : to.planes[1]) byte = static_cast<uint8_t>(112 + random() % 14);
      break;
    case Split::nvfp4_multiplied:
    case Split::nvfp4_divided:
      fill_any(random, codes, code_bytes);
      fill_nvfp4(random, to);
      break;
    default:
      fill_any(random, codes, code_bytes);
      for (int64_t row = 0; row < rows; row++) {
        const int64_t row_bytes = plane_row_bytes(split, 1, columns);
        fill_grouped_row(random, grouped_codes(split), columns, to.planes[1].data() + row * row_bytes);
      }
      fill_order(random, to);
  }
  return to;
}

}  // namespace odmoe
