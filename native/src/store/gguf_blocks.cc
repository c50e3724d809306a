// The blocks of llama.cpp's ggml-quants.c (v0.5.0), read from their bytes. Each product of a scale and a code is exact in FP32; where
// a minimum is added, the sum is the one rounding.
#include "gguf_blocks.h"

#include <algorithm>
#include <cmath>

#include "half.h"

namespace odmoe {
namespace {

constexpr int kMostBlockColumns = 256;
constexpr int kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

float half_at(const uint8_t* bytes) { return fp16_to_float(static_cast<uint16_t>(bytes[0] | bytes[1] << 8)); }

int fifth_bit(const uint8_t* bits, int i) { return bits[i / 8] >> (i % 8) & 1; }

// Code i of 32 codes in 16 bytes: the lower halves are the first 16.
int half_byte(const uint8_t* codes, int i) { return i < 16 ? codes[i] & 15 : codes[i - 16] >> 4; }

void q4_0(const uint8_t* block, float* out) {
  for (int i = 0; i < 32; i++) out[i] = static_cast<float>(half_byte(block + 2, i) - 8) * half_at(block);
}

void q4_1(const uint8_t* block, float* out) {
  for (int i = 0; i < 32; i++) out[i] = static_cast<float>(half_byte(block + 4, i)) * half_at(block) + half_at(block + 2);
}

void q5_0(const uint8_t* block, float* out) {
  for (int i = 0; i < 32; i++) {
    const int code = half_byte(block + 6, i) | fifth_bit(block + 2, i) << 4;
    out[i] = static_cast<float>(code - 16) * half_at(block);
  }
}

void q5_1(const uint8_t* block, float* out) {
  for (int i = 0; i < 32; i++) {
    const int code = half_byte(block + 8, i) | fifth_bit(block + 4, i) << 4;
    out[i] = static_cast<float>(code) * half_at(block) + half_at(block + 2);
  }
}

void q8_0(const uint8_t* block, float* out) {
  for (int i = 0; i < 32; i++) out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * half_at(block);
}

void iq4_nl(const uint8_t* block, float* out) {
  for (int i = 0; i < 32; i++) out[i] = static_cast<float>(kIq4Values[half_byte(block + 2, i)]) * half_at(block);
}

void q2_k(const uint8_t* block, float* out) {
  const float scale = half_at(block + 80);
  const float minimum = half_at(block + 82);
  for (int i = 0; i < 256; i++) {
    const int group = i / 16;
    const int code = block[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    const float low = minimum * static_cast<float>(block[group] >> 4);
    out[i] = scale * static_cast<float>(block[group] & 15) * static_cast<float>(code) - low;
  }
}

void q3_k(const uint8_t* block, float* out) {
  const uint8_t* const scales = block + 96;
  const float scale = half_at(block + 108);
  for (int i = 0; i < 256; i++) {
    const int group = i / 16;
    const int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
    const int high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
    const int pair = block[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    const int code = pair - ((block[i % 32] >> (i / 32) & 1) != 0 ? 0 : 4);
    out[i] = scale * static_cast<float>((low | high << 4) - 32) * static_cast<float>(code);
  }
}

// Scale and minimum of group j of a block of Q4_K or Q5_K.
int k_scale(const uint8_t* bytes, int j) { return j < 4 ? bytes[j] & 63 : (bytes[j + 4] & 15) | bytes[j - 4] >> 6 << 4; }
int k_minimum(const uint8_t* bytes, int j) { return j < 4 ? bytes[j + 4] & 63 : bytes[j + 4] >> 4 | bytes[j] >> 6 << 4; }

// The four lower bits of code i.
int k_code(const uint8_t* codes, int i) { return codes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15; }

float k_value(const uint8_t* block, int group, int code) {
  const float low = half_at(block + 2) * static_cast<float>(k_minimum(block + 4, group));
  return half_at(block) * static_cast<float>(k_scale(block + 4, group)) * static_cast<float>(code) - low;
}

void q4_k(const uint8_t* block, float* out) {
  for (int i = 0; i < 256; i++) out[i] = k_value(block, i / 32, k_code(block + 16, i));
}

void q5_k(const uint8_t* block, float* out) {
  for (int i = 0; i < 256; i++) {
    const int fifth = block[16 + i % 32] >> (i / 32) & 1;
    out[i] = k_value(block, i / 32, k_code(block + 48, i) | fifth << 4);
  }
}

void q6_k(const uint8_t* block, float* out) {
  const float scale = half_at(block + 208);
  for (int i = 0; i < 256; i++) {
    const int half = i / 128;
    const int quarter = i % 128 / 32;
    const int low = block[half * 64 + quarter % 2 * 32 + i % 32] >> (quarter / 2 * 4) & 15;
    const int high = block[128 + half * 32 + i % 32] >> (quarter * 2) & 3;
    const float group = scale * static_cast<float>(static_cast<int8_t>(block[192 + i / 16]));
    out[i] = group * static_cast<float>((low | high << 4) - 32);
  }
}

void iq4_xs(const uint8_t* block, float* out) {
  const int high = block[2] | block[3] << 8;
  for (int group = 0; group < 8; group++) {
    const int low = block[4 + group / 2] >> (group % 2 * 4) & 15;
    const float scale = half_at(block) * static_cast<float>((low | (high >> (2 * group) & 3) << 4) - 32);
    const uint8_t* const codes = block + 8 + group * 16;
    for (int i = 0; i < 32; i++) out[group * 32 + i] = scale * static_cast<float>(kIq4Values[half_byte(codes, i)]);
  }
}

using BlockValues = void (*)(const uint8_t* block, float* out);

BlockValues values_of(Split split) {
  switch (kind_of(split)) {
    case Split::q4_0: return q4_0;
    case Split::q4_1: return q4_1;
    case Split::q5_0: return q5_0;
    case Split::q5_1: return q5_1;
    case Split::q8_0: return q8_0;
    case Split::q2_k: return q2_k;
    case Split::q3_k: return q3_k;
    case Split::q4_k: return q4_k;
    case Split::q5_k: return q5_k;
    case Split::q6_k: return q6_k;
    case Split::iq4_nl: return iq4_nl;
    default: return iq4_xs;
  }
}

// Places of a block's FP16 numbers; -1: none.
struct HalfPlaces {
  int first;
  int second;
};

HalfPlaces half_places(Split split) {
  switch (kind_of(split)) {
    case Split::q4_1:
    case Split::q5_1:
    case Split::q4_k:
    case Split::q5_k: return {0, 2};
    case Split::q2_k: return {80, 82};
    case Split::q3_k: return {108, -1};
    case Split::q6_k: return {208, -1};
    default: return {0, -1};
  }
}

bool is_finite(const uint8_t* half) { return (half[1] & 0x7c) != 0x7c; }

}  // namespace

void gguf_row_to_floats(Split split, const uint8_t* row, int64_t columns, float* out) {
  const BlockShape shape = block_shape(split);
  const BlockValues values = values_of(split);
  for (; columns >= shape.columns; columns -= shape.columns, row += shape.bytes, out += shape.columns) values(row, out);
  if (columns == 0) return;
  float last[kMostBlockColumns];
  values(row, last);
  std::copy_n(last, columns, out);
}

const char* gguf_row_fault(Split split, const uint8_t* row, int64_t columns) {
  const BlockShape shape = block_shape(split);
  const HalfPlaces places = half_places(split);
  bool finite = true;
  for (; columns > 0; columns -= shape.columns, row += shape.bytes) {
    finite = finite && is_finite(row + places.first) && (places.second < 0 || is_finite(row + places.second));
  }
  return finite ? nullptr : "a scale of a block is not a finite number";
}

}  // namespace odmoe
