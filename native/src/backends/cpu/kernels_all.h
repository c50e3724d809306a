// Included by each kernels_<instruction set>.cc after its Simd: all kernels, and the table of them.
#pragma once
#include "kernels_dot.h"
#include "kernels_elementwise.h"
#include "kernels_attention.h"
#include "kernels_weights.h"
#include "kernels_measure.h"

namespace odmoe::cpu {
namespace {

constexpr KernelTable make_table() {
  return {Simd::kName, &matmul,       &rms_norm,    &rope,     &attention,  &router,     &swiglu,      &add,
          &combine,    &exponentials, &fold_values, &read_row, &write_rows, &read_bytes, &multiply_add};
}

}  // namespace
}  // namespace odmoe::cpu
