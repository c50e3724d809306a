#include "fixed4_rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "fixed4_lookup.h"
#include "weight_layout.h"
#include "weight_values.h"

namespace odmoe::cuda {
namespace {

constexpr WeightFormat kFormat = WeightFormat::fixed4;

// A tile's rows as BF16, and the codes chosen for them.
class Tile {
 public:
  explicit Tile(int64_t columns)
      : columns_(columns), steps_(steps_of(columns)), values_(static_cast<size_t>(kFixed4TileRows * columns)) {}

  // Reads the tile's first rows, which an earlier call wrote.
  void read(const uint8_t* tile, int rows);

  // False if a value is not a BF16.
  template <Split kSplit>
  bool take(const ShippedValues<kSplit>& values, int row) {
    uint16_t* const to = values_.data() + row * columns_;
    uint32_t lost = 0;
    for (int64_t i = 0; i < columns_; ++i) {
      if constexpr (ShippedValues<kSplit>::kBf16) {
        to[i] = static_cast<uint16_t>(values.bits(i));
      } else {
        const uint32_t bits = bits_of_float(values.value(i));
        lost |= bits & 0xffffu;
        to[i] = static_cast<uint16_t>(bits >> 16);
      }
    }
    return lost == 0;
  }

  // False if the tile has no room for all escapes.
  bool write(uint8_t* tile, int rows);

 private:
  static int exponent(uint16_t bits) { return bits >> 7 & 0xff; }
  // Chooses the 16 exponents that occur most often (of equally frequent ones the lower); returns the number of weights with another
  // exponent.
  int64_t choose_codes(int rows);
  void write_row(uint8_t* to, int row, std::vector<uint32_t>& escapes) const;
  void write_padding(uint8_t* to) const;

  const int64_t columns_;
  const int steps_;
  std::vector<uint16_t> values_;
  std::array<uint8_t, kFixed4CodeCount> exponents_ = {};
  std::array<int, 256> codes_ = {};  // -1: an escape
  int padding_ = 0;                  // the code of places without a weight
};

void Tile::read(const uint8_t* tile, int rows) {
  Fixed4Tables tables;
  std::memcpy(tables.high, tile, sizeof tables.high);
  std::memcpy(tables.low, tile + kFixed4CodeCount, sizeof tables.low);
  uint32_t escape = 0;
  for (int row = 0; row < rows; ++row) {
    const uint8_t* const data = tile + fixed4_prefix_bytes(columns_) + row * row_bytes(kFormat, columns_);
    uint16_t* const values = values_.data() + row * columns_;
    for (int64_t column = 0; column < columns_; ++column) {
      const int step = static_cast<int>(column / kLanes);
      const int lane = static_cast<int>(column % kLanes);
      const Piece piece = piece_of(steps_, main_steps(kFormat), step);
      const int within = step - piece.first;
      const uint8_t* const at = data + fixed4_piece_offset(piece.first);
      const uint32_t sign_mantissa = at[lane * piece.steps + within];
      const uint32_t codes = at[piece.steps * kLanes + lane_code_bytes(lane, piece.steps) + within / 2];
      values[column] = static_cast<uint16_t>(fixed4_lookup(tables, sign_mantissa, codes >> (within % 2 * 4) & 15u).first);
    }
    uint32_t end;
    std::memcpy(&end, tile + kFixed4EndsOffset + 4 * row, 4);
    for (; escape < end; ++escape) {
      uint32_t entry;
      std::memcpy(&entry, tile + kFixed4EscapesOffset + 4 * escape, 4);
      uint16_t& value = values[(entry >> 16) * kLanes + (entry >> 8 & 31u)];
      value = static_cast<uint16_t>(with_exponent(value, entry & 0xffu));
    }
  }
}

int64_t Tile::choose_codes(int rows) {
  std::array<uint32_t, 256> counts = {};
  const int64_t count = rows * columns_;
  for (int64_t i = 0; i < count; ++i) ++counts[static_cast<size_t>(exponent(values_[static_cast<size_t>(i)]))];
  std::array<int, 256> order;
  for (int e = 0; e < 256; ++e) order[static_cast<size_t>(e)] = e;
  std::partial_sort(order.begin(), order.begin() + kFixed4CodeCount, order.end(), [&counts](int a, int b) {
    const uint32_t of_a = counts[static_cast<size_t>(a)];
    const uint32_t of_b = counts[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
  codes_.fill(-1);
  int64_t escapes = count;
  for (int c = 0; c < kFixed4CodeCount; ++c) {
    const auto e = static_cast<size_t>(order[static_cast<size_t>(c)]);
    exponents_[static_cast<size_t>(c)] = static_cast<uint8_t>(e);
    codes_[e] = c;
    escapes -= counts[e];
  }
  // It must not be infinity's exponent: any other one, times zero, gives the zero that a padded column must give.
  padding_ = exponents_[0] == 255 ? 1 : 0;
  return escapes;
}

void Tile::write_row(uint8_t* to, int row, std::vector<uint32_t>& escapes) const {
  const uint16_t* const values = values_.data() + row * columns_;
  for (int step = 0; step < steps_; ++step) {
    const Piece piece = piece_of(steps_, main_steps(kFormat), step);
    const int within = step - piece.first;
    uint8_t* const at = to + fixed4_piece_offset(piece.first);
    uint8_t* const sign_mantissas = at + within;
    uint8_t* const codes = at + piece.steps * kLanes + within / 2;
    const int code_stride = lane_code_bytes(1, piece.steps);
    for (int lane = 0; lane < kLanes; ++lane) {
      const int64_t column = int64_t{step} * kLanes + lane;
      int code = padding_;
      uint32_t sign_mantissa = 0;
      if (column < columns_) {
        const uint16_t value = values[column];
        sign_mantissa = (value >> 8 & 0x80u) | (value & 0x7fu);
        code = codes_[static_cast<size_t>(exponent(value))];
        if (code < 0) {
          escapes.push_back(static_cast<uint32_t>(step) << 16 | static_cast<uint32_t>(lane) << 8 |
                            static_cast<uint32_t>(exponent(value)));
          code = 0;
        }
      }
      sign_mantissas[lane * piece.steps] = static_cast<uint8_t>(sign_mantissa);
      uint8_t& both = codes[lane * code_stride];
      both = static_cast<uint8_t>(within % 2 == 0 ? code : both | code << 4);
    }
  }
}

void Tile::write_padding(uint8_t* to) const { std::memset(to, 0, static_cast<size_t>(row_bytes(kFormat, columns_))); }

bool Tile::write(uint8_t* tile, int rows) {
  if (choose_codes(rows) > fixed4_capacity(columns_)) return false;
  const int64_t prefix = fixed4_prefix_bytes(columns_);
  std::memset(tile, 0, static_cast<size_t>(prefix));
  for (int c = 0; c < kFixed4CodeCount; ++c) {
    const uint32_t e = exponents_[static_cast<size_t>(c)];
    tile[c] = static_cast<uint8_t>(e >> 1);
    tile[kFixed4CodeCount + c] = static_cast<uint8_t>(e << 7);
  }
  std::vector<uint32_t> escapes;
  for (int row = 0; row < kFixed4TileRows; ++row) {
    uint8_t* const to = tile + prefix + row * row_bytes(kFormat, columns_);
    if (row < rows) {
      write_row(to, row, escapes);
    } else {
      write_padding(to);
    }
    const auto end = static_cast<uint32_t>(escapes.size());
    std::memcpy(tile + kFixed4EndsOffset + 4 * row, &end, 4);
  }
  if (!escapes.empty()) std::memcpy(tile + kFixed4EscapesOffset, escapes.data(), 4 * escapes.size());
  return true;
}

template <Split kSplit>
bool encode(uint8_t* tiles, int64_t columns, int64_t first_row, int64_t rows, const uint8_t* const* planes) {
  ShippedValues<kSplit> values = {};
  for (int plane = 0; plane < plane_count(kSplit); ++plane) values.planes[plane] = planes[plane];
  Tile tile(columns);
  int in_tile = static_cast<int>(first_row % kFixed4TileRows);
  for (int64_t row = 0; row < rows; in_tile = 0, tiles += fixed4_tile_bytes(columns)) {
    tile.read(tiles, in_tile);
    for (; in_tile < kFixed4TileRows && row < rows; ++in_tile, ++row) {
      if (!tile.take(values.row(row, columns), in_tile)) return false;
    }
    if (!tile.write(tiles, in_tile)) return false;
  }
  return true;
}

}  // namespace

Fixed4Tiles fixed4_tiles(int64_t columns, int64_t first_row, int64_t rows) {
  const int64_t first = first_row / kFixed4TileRows;
  const int64_t end = (first_row + rows + kFixed4TileRows - 1) / kFixed4TileRows;
  return {first * fixed4_tile_bytes(columns), (end - first) * fixed4_tile_bytes(columns), first_row % kFixed4TileRows != 0};
}

bool encode_fixed4_rows(uint8_t* tiles, int64_t columns, int64_t first_row, int64_t rows, Split split,
                        const uint8_t* const* planes) {
  if (columns > kFixed4MostColumns) return false;
  switch (split) {
    case Split::none_bf16: return encode<Split::none_bf16>(tiles, columns, first_row, rows, planes);
    case Split::none_fp16: return encode<Split::none_fp16>(tiles, columns, first_row, rows, planes);
    case Split::none_fp32: return encode<Split::none_fp32>(tiles, columns, first_row, rows, planes);
    case Split::bf16_e8_sm8: return encode<Split::bf16_e8_sm8>(tiles, columns, first_row, rows, planes);
    case Split::fp16_hi8_lo8: return encode<Split::fp16_hi8_lo8>(tiles, columns, first_row, rows, planes);
    case Split::fp32_e8_sm8_r16: return encode<Split::fp32_e8_sm8_r16>(tiles, columns, first_row, rows, planes);
    case Split::fp16_e5_lo8_s1m2: return encode<Split::fp16_e5_lo8_s1m2>(tiles, columns, first_row, rows, planes);
    case Split::mxfp4: return encode<Split::mxfp4>(tiles, columns, first_row, rows, planes);
    case Split::fp8: return encode<Split::fp8>(tiles, columns, first_row, rows, planes);
    default: return false;
  }
}

}  // namespace odmoe::cuda
