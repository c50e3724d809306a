// INT4 and INT8 codes of compressed-tensors, GPTQ and AWQ (shared/model/tensor-source.ts, StoredForm).
#include <algorithm>
#include <array>
#include <cstring>

#include "repacked_matrix.h"

namespace odmoe {
namespace {

// The half byte of an AWQ word, counted from the lowest, that has the k-th of its eight rows (AutoAWQ's gemm layout).
constexpr std::array<int, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

uint32_t load_word(const uint8_t* words, int64_t index) {
  uint32_t word;
  std::memcpy(&word, words + 4 * index, sizeof word);
  return word;
}

int get_code(const uint8_t* codes, int bits, int64_t i) { return bits == 8 ? codes[i] : codes[i / 2] >> (i % 2 * 4) & 15; }

// The bits of the code must still be 0.
void put_code(uint8_t* codes, int bits, int64_t i, int code) {
  if (bits == 8) {
    codes[i] = static_cast<uint8_t>(code);
  } else {
    codes[i / 2] = static_cast<uint8_t>(codes[i / 2] | code << (i % 2 * 4));
  }
}

class GroupedMatrix final : public RepackedMatrix {
 public:
  explicit GroupedMatrix(const TensorSource& source)
      : RepackedMatrix(source),
        codes_(grouped_codes(split_)),
        groups_(codes_.groups(columns_)),
        scale_width_(codes_.scales == ScaleType::fp32 ? 4 : 2) {}

 private:
  void repack(int64_t first, int64_t count) override {
    load_once();
    if (is_transposed(view_.form)) {
      scales_ = whole_[1].data();
      zeros_ = whole_[2].data();
    } else {
      scales_ = read(1, groups_ * scale_width_, first, count);
      const int64_t first_word = first * codes_.bits / 32;
      const int64_t words = (first + count - 1) * codes_.bits / 32 - first_word + 1;
      if (codes_.zeros) zeros_ = read(2, groups_ * 4, first_word, words);
    }
    repack_codes(first, count);
    for (int64_t row = 0; row < count; row++) {
      std::memset(out(1, row), 0, static_cast<size_t>(plane_row_bytes(split_, 1, columns_)));
      write_scales(first, row);
      write_zeros(first, row);
      write_order(first + row, out(1, row) + codes_.scale_bytes(columns_) + codes_.zero_bytes(columns_));
    }
  }

  void load_once() {
    if (loaded_) return;
    loaded_ = true;
    if (is_transposed(view_.form)) {
      for (int plane = 0; plane < 3; plane++) whole_[static_cast<size_t>(plane)] = read_whole(plane);
    }
    load_order();
  }

  // The group of each column. Files that have no order have j / group, or, older ones, only 0.
  void load_order() {
    const std::vector<uint8_t> bytes = read_whole(3);
    const int64_t group = codes_.group == 0 ? columns_ : codes_.group;
    bool ordered = true;
    bool zero = true;
    for (int64_t i = 0; i < static_cast<int64_t>(bytes.size() / 4); i++) {
      const uint32_t index = load_word(bytes.data(), i);
      if (index >= static_cast<uint32_t>(groups_)) refuse("g_idx gives a column a group that does not exist");
      ordered = ordered && index == static_cast<uint32_t>(i / group);
      zero = zero && index == 0;
    }
    const bool trivial = ordered || zero;
    if (codes_.order_bytes == 0) {
      if (!trivial) refuse("g_idx puts the columns into another order, and by config.json they are in order");
      return;
    }
    order_.resize(static_cast<size_t>(columns_));
    std::vector<int64_t> next(static_cast<size_t>(groups_));
    for (int64_t i = 0; i < groups_; i++) next[static_cast<size_t>(i)] = i * group;
    for (int64_t i = 0; i < columns_; i++) {
      const int64_t index = trivial ? i / group : load_word(bytes.data(), i);
      int64_t& place = next[static_cast<size_t>(index)];
      if (place >= std::min((index + 1) * group, columns_)) refuse("g_idx gives a group more columns than it has");
      order_[static_cast<size_t>(place++)] = static_cast<uint16_t>(i);
    }
  }

  void repack_codes(int64_t first, int64_t count) {
    const int64_t row_bytes = codes_.code_bytes(columns_);
    if (view_.form == StoredForm::pack_quantized) {
      std::memcpy(out(0, 0), read(0, row_bytes, first, count), static_cast<size_t>(count * row_bytes));
    } else if (view_.form == StoredForm::awq) {
      std::memset(out(0, 0), 0, static_cast<size_t>(count * row_bytes));
      unpack_awq(first, count, row_bytes);
    } else {
      // A word has consecutive columns of a row.
      for (int64_t word = 0; word < row_bytes / 4; word++) {
        const uint8_t* const from = whole_[0].data() + 4 * (word * rows_total_ + first);
        for (int64_t row = 0; row < count; row++) std::memcpy(out(0, 0) + row * row_bytes + 4 * word, from + 4 * row, 4);
      }
    }
    if (order_.empty()) return;
    for (int64_t row = 0; row < count; row++) sort_columns(out(0, row), row_bytes);
  }

  void unpack_awq(int64_t first, int64_t count, int64_t row_bytes) {
    uint8_t* const rows = out(0, 0);
    for (int64_t column = 0; column < columns_; column++) {
      const uint8_t* const words = whole_[0].data() + column * (rows_total_ / 8) * 4;
      for (int64_t row = 0; row < count; row++) {
        const uint32_t word = load_word(words, (first + row) / 8);
        put_code(rows + row * row_bytes, 4, column, word >> (4 * kAwqPlaces[static_cast<size_t>((first + row) % 8)]) & 15);
      }
    }
  }

  void sort_columns(uint8_t* row, int64_t row_bytes) {
    unsorted_.assign(row, row + row_bytes);
    std::memset(row, 0, static_cast<size_t>(row_bytes));
    for (int64_t i = 0; i < columns_; i++)
      put_code(row, codes_.bits, i, get_code(unsorted_.data(), codes_.bits, order_[static_cast<size_t>(i)]));
  }

  // `row` counts from `first`.
  void write_scales(int64_t first, int64_t row) {
    if (!is_transposed(view_.form)) {
      std::memcpy(out(1, row), scales_ + row * groups_ * scale_width_, static_cast<size_t>(groups_ * scale_width_));
      return;
    }
    for (int64_t group = 0; group < groups_; group++) {
      const uint8_t* const from = scales_ + (group * rows_total_ + first + row) * scale_width_;
      std::memcpy(out(1, row) + group * scale_width_, from, static_cast<size_t>(scale_width_));
    }
  }

  void write_zeros(int64_t first, int64_t row) {
    if (view_.form == StoredForm::pack_quantized && !codes_.zeros) return;
    for (int64_t group = 0; group < groups_; group++) {
      const int zero = zero_point(first, row, group);
      if (codes_.zeros) {
        put_code(out(1, row) + codes_.scale_bytes(columns_), codes_.bits, group, zero);
      } else if (zero != 1 << (codes_.bits - 1)) {
        refuse("qzeros has a zero point of " + std::to_string(zero) + ", and by config.json (sym) all are " +
               std::to_string(1 << (codes_.bits - 1)));
      }
    }
  }

  int zero_point(int64_t first, int64_t row, int64_t group) const {
    const int bits = codes_.bits;
    const int64_t place = (first + row) * bits;
    const auto mask = static_cast<uint32_t>((1 << bits) - 1);
    if (view_.form == StoredForm::pack_quantized)
      return static_cast<int>(load_word(zeros_, (place / 32 - first * bits / 32) * groups_ + group) >> (place % 32) & mask);
    const uint32_t word = load_word(zeros_, group * (rows_total_ * bits / 32) + place / 32);
    if (view_.form == StoredForm::awq)
      return static_cast<int>(word >> (4 * kAwqPlaces[static_cast<size_t>((first + row) % 8)]) & mask);
    const auto stored = static_cast<int>(word >> (place % 32) & mask);
    if (view_.form == StoredForm::gptq) return stored;
    if (stored == static_cast<int>(mask)) refuse("qzeros has a zero point that is stored as -1, which programs read in two ways");
    return stored + 1;
  }

  // The piece of the order that belongs to a row.
  void write_order(int64_t row, uint8_t* piece) const {
    const int64_t begin = row * codes_.order_bytes;
    const auto bytes = static_cast<int64_t>(order_.size() * 2);
    for (int64_t i = 0; i < codes_.order_bytes && begin + i < bytes; i++)
      piece[i] = static_cast<uint8_t>(order_[static_cast<size_t>((begin + i) / 2)] >> ((begin + i) % 2 * 8));
  }

  GroupedCodes codes_;
  int64_t groups_;
  int64_t scale_width_;
  bool loaded_ = false;
  std::array<std::vector<uint8_t>, 3> whole_;
  const uint8_t* scales_ = nullptr;
  const uint8_t* zeros_ = nullptr;
  std::vector<uint8_t> unsorted_;
};

}  // namespace

std::unique_ptr<MatrixReader> open_grouped_matrix(const TensorSource& source) { return std::make_unique<GroupedMatrix>(source); }

}  // namespace odmoe
