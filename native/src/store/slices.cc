#include "odmoe/slices.h"

#include <algorithm>
#include <cmath>

#include "half.h"
#include "little_endian.h"

namespace odmoe {
namespace {

constexpr float kLargestFp16 = 65504.0f;
constexpr uint16_t kFp16Infinity = 0x7c00;

// A value of 0 to kLargestFp16 as FP16, rounded to nearest, ties to even.
uint16_t half_of_scale(float value) {
  if (value < 0x1p-14f) return static_cast<uint16_t>(std::nearbyint(value * 0x1p24f));
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);  // 0.5 to 1, without 1
  // 1024 to 2048; 2048 carries into the exponent.
  const auto mantissa = static_cast<int>(std::nearbyint(fraction * 0x1p11f));
  return static_cast<uint16_t>(((exponent + 13) << 10) + mantissa);
}

int code_at(int bits, const uint8_t* group, int column) {
  if (bits == 4) return group[column % 16] >> (column / 16 * 4) & 15;
  const int low = group[column % 8] >> (column / 8 * 2) & 3;
  return bits == 2 ? low : low | (group[8 + column / 8] >> (column % 8) & 1) << 2;
}

// The group's bytes are zeros before its first code is put.
void put_code(int bits, uint8_t* group, int column, int code) {
  const auto put = [](uint8_t& byte, int value) { byte = static_cast<uint8_t>(byte | value); };
  if (bits == 4) return put(group[column % 16], code << (column / 16 * 4));
  put(group[column % 8], (code & 3) << (column / 8 * 2));
  if (bits == 3) put(group[8 + column / 8], (code >> 2) << (column % 8));
}

// The places of a row's parts in its slices.
struct RowPlaces {
  int bits;
  int64_t groups;
  int64_t code_bytes;

  RowPlaces(Split split, int64_t columns)
      : bits(slice_bits(split)), groups(slice_groups(columns)), code_bytes(slice_code_bytes(bits)) {}
  int64_t codes(int64_t group) const { return group * code_bytes; }
  int64_t scale(int64_t group) const { return groups * code_bytes + group * 2; }
  int64_t zero(int64_t group) const { return groups * (code_bytes + 2) + group; }
  int highest_code() const { return (1 << 2 * bits) - 1; }
};

int rounded_within(float value, int most) { return static_cast<int>(std::clamp(value, 0.0f, static_cast<float>(most))); }

const char* slice_group(const RowPlaces& places, int64_t group, const float* weights, int count, uint8_t* upper, uint8_t* lower) {
  float lowest = 0.0f;
  float highest = 0.0f;
  for (int i = 0; i < count; i++) {
    if (!std::isfinite(weights[i])) return "a weight is not finite";
    lowest = std::min(lowest, weights[i]);
    highest = std::max(highest, weights[i]);
  }
  const int most = places.highest_code();
  const float wanted = (highest - lowest) / static_cast<float>(most);
  if (!(wanted <= kLargestFp16)) return "the weights of a group lie too far apart for an FP16 scale";
  const uint16_t half = half_of_scale(wanted);
  store_number(upper + places.scale(group), half);
  if (half == 0) return nullptr;
  const float scale = fp16_to_float(half);
  const int zero = rounded_within(std::nearbyint(-lowest / scale), most);
  upper[places.zero(group)] = static_cast<uint8_t>(zero);
  for (int i = 0; i < count; i++) {
    const int code = rounded_within(std::nearbyint(weights[i] / scale) + static_cast<float>(zero), most);
    put_code(places.bits, upper + places.codes(group), i, code >> places.bits);
    put_code(places.bits, lower + places.codes(group), i, code & ((1 << places.bits) - 1));
  }
  return nullptr;
}

// Columns of a group: fewer in the last one.
int columns_of(int64_t group, int64_t columns) {
  return static_cast<int>(std::min<int64_t>(kSliceGroup, columns - group * kSliceGroup));
}

bool has_code_behind(const RowPlaces& places, const uint8_t* codes, int64_t columns) {
  const int64_t last = places.groups - 1;
  for (int i = columns_of(last, columns); i < kSliceGroup; i++) {
    if (code_at(places.bits, codes + places.codes(last), i) != 0) return true;
  }
  return false;
}

}  // namespace

const char* slice_row(Split split, const float* weights, int64_t columns, uint8_t* upper, uint8_t* lower) {
  const RowPlaces places(split, columns);
  std::fill_n(upper, plane_row_bytes(split, 0, columns), uint8_t{0});
  std::fill_n(lower, plane_row_bytes(split, 1, columns), uint8_t{0});
  for (int64_t group = 0; group < places.groups; group++) {
    const float* const first = weights + group * kSliceGroup;
    const char* const fault = slice_group(places, group, first, columns_of(group, columns), upper, lower);
    if (fault != nullptr) return fault;
  }
  return nullptr;
}

void slices_to_floats(Split split, SliceReading reading, const uint8_t* upper, const uint8_t* lower, int64_t columns, float* out) {
  const RowPlaces places(split, columns);
  const int step = 1 << places.bits;
  for (int64_t i = 0; i < columns; i++) {
    const int64_t group = i / kSliceGroup;
    const auto column = static_cast<int>(i % kSliceGroup);
    const float scale = fp16_to_float(load_number<uint16_t>(upper + places.scale(group)));
    const int zero = upper[places.zero(group)];
    const int high = code_at(places.bits, upper + places.codes(group), column);
    switch (reading) {
      case SliceReading::both: {
        const int code = high * step + code_at(places.bits, lower + places.codes(group), column);
        out[i] = scale * static_cast<float>(code - zero);
        break;
      }
      case SliceReading::upper_centred:
        out[i] = scale * (static_cast<float>(high * step - zero) + static_cast<float>(step - 1) * 0.5f);
        break;
      case SliceReading::upper_amat: out[i] = scale * static_cast<float>(step * (high - (zero >> places.bits))); break;
    }
  }
}

const char* slices_fault(Split split, const uint8_t* upper, const uint8_t* lower, int64_t columns) {
  const RowPlaces places(split, columns);
  if (lower != nullptr && has_code_behind(places, lower, columns)) return "a lower slice has a code behind its last column";
  if (upper == nullptr) return nullptr;
  if (has_code_behind(places, upper, columns)) return "an upper slice has a code behind its last column";
  for (int64_t group = 0; group < places.groups; group++) {
    const auto half = load_number<uint16_t>(upper + places.scale(group));
    if (half >= kFp16Infinity) return "a slice's scale is negative or not a number";
    const int zero = upper[places.zero(group)];
    if (zero > places.highest_code()) return "a slice's zero is above its highest code";
  }
  return nullptr;
}

}  // namespace odmoe
