// Sums of products for the training of small maps (expert_maps_training.cc).
#pragma once
#include "kernels_base.h"

namespace odmoe::cpu {
namespace {

// A block of kRows x kColumns vectors of results stays in registers. kPartial: the last vector has `rest` columns.
template <int kRows, int kColumns, bool kPartial>
ODMOE_INLINE void sum_block(const ProductSums& work, int64_t row, int64_t column, int64_t rest) {
  const auto load = [rest](const float* p, int c) {
    return kPartial && c == kColumns - 1 ? Simd::load_first(p, rest) : Simd::load(p);
  };
  Simd::Vector sums[kRows][kColumns];
  for (auto& of_row : sums) {
    for (Simd::Vector& sum : of_row) sum = Simd::zero();
  }
  const float* left = work.left + row * work.left_row;
  const float* right = work.right + column;
  for (int64_t term = 0; term < work.terms; ++term, left += work.left_term, right += work.right_term) {
    Simd::Vector factors[kColumns];
    for (int c = 0; c < kColumns; ++c) factors[c] = load(right + c * Simd::kWidth, c);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Simd::Vector of_row = Simd::broadcast(left[r * work.left_row]);
      for (int c = 0; c < kColumns; ++c) sums[r][c] = Simd::fma(of_row, factors[c], sums[r][c]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float* const out = work.out + (row + r) * work.out_row + column;
    for (int c = 0; c < kColumns; ++c) {
      if (kPartial && c == kColumns - 1) {
        Simd::store_first(out + c * Simd::kWidth, sums[r][c], rest);
      } else {
        Simd::store(out + c * Simd::kWidth, sums[r][c]);
      }
    }
  }
}

template <int kRows>
ODMOE_INLINE void sum_rows(const ProductSums& work, int64_t row) {
  int64_t column = 0;
  for (; column + 2 * Simd::kWidth <= work.columns; column += 2 * Simd::kWidth) sum_block<kRows, 2, false>(work, row, column, 0);
  for (; column < work.columns; column += Simd::kWidth) {
    const int64_t rest = work.columns - column;
    if (rest >= Simd::kWidth) {
      sum_block<kRows, 1, false>(work, row, column, 0);
    } else {
      sum_block<kRows, 1, true>(work, row, column, rest);
    }
  }
}

void sum_products(const ProductSums& work, int64_t begin, int64_t end) {
  int64_t row = begin;
  for (; row + 4 <= end; row += 4) sum_rows<4>(work, row);
  for (; row < end; ++row) sum_rows<1>(work, row);
}

}  // namespace
}  // namespace odmoe::cpu
