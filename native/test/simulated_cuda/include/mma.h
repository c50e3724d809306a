// Stand-in for NVIDIA's header of the same name: 16 x 16 x 16 tiles of bfloat16, summed in float. NVIDIA does not document which
// lane holds which element; here lane l holds elements 8 l ... 8 l + 7 of the tile, row by row.
#pragma once

#include "cuda_bf16.h"

namespace nvcuda {
namespace wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <typename Use, int m, int n, int k, typename T, typename Layout = void>
struct fragment {
  static_assert(m == 16 && n == 16 && k == 16, "the simulated device multiplies tiles of 16 x 16 x 16 only");
  static constexpr int num_elements = 8;
  T x[num_elements];
};

template <typename Use, typename T, typename Layout>
inline void fill_fragment(fragment<Use, 16, 16, 16, T, Layout>& tile, const T& value) {
  for (T& element : tile.x) element = value;
}

namespace simulated {
template <typename T>
inline void check_tile(const T* address, unsigned stride) {
  odmoe_simulated::require(reinterpret_cast<uintptr_t>(address) % 32 == 0, "a tile's address is no multiple of 32 bytes");
  odmoe_simulated::require(stride * sizeof(T) % 16 == 0, "a tile's stride is no multiple of 16 bytes");
}
}  // namespace simulated

// All lanes must call this with the same address: NVIDIA's functions are for the whole warp.
template <typename Use, typename T, typename Layout>
inline void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& tile, const T* from, unsigned stride) {
  simulated::check_tile(from, stride);
  __syncwarp();
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned element = odmoe_simulated::lane_index() * 8 + i, row = element / 16, column = element % 16;
    tile.x[i] = std::is_same<Layout, col_major>::value ? from[column * stride + row] : from[row * stride + column];
  }
  __syncwarp();
}
template <typename T>
inline void load_matrix_sync(fragment<accumulator, 16, 16, 16, T>& tile, const T* from, unsigned stride, layout_t layout) {
  simulated::check_tile(from, stride);
  __syncwarp();
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned element = odmoe_simulated::lane_index() * 8 + i, row = element / 16, column = element % 16;
    tile.x[i] = layout == mem_col_major ? from[column * stride + row] : from[row * stride + column];
  }
  __syncwarp();
}
template <typename T>
inline void store_matrix_sync(T* to, const fragment<accumulator, 16, 16, 16, T>& tile, unsigned stride, layout_t layout) {
  simulated::check_tile(to, stride);
  __syncwarp();
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned element = odmoe_simulated::lane_index() * 8 + i, row = element / 16, column = element % 16;
    (layout == mem_col_major ? to[column * stride + row] : to[row * stride + column]) = tile.x[i];
  }
  __syncwarp();
}

namespace simulated {
struct Lane {
  const __nv_bfloat16 *a, *b;
  const float* c;
  float* d;
};
inline void multiply(void* const lanes[32], unsigned) {
  float a[256], b[256], c[256];
  for (int element = 0; element < 256; ++element) {
    const Lane& lane = *static_cast<const Lane*>(lanes[element / 8]);
    a[element] = __bfloat162float(lane.a[element % 8]);
    b[element] = __bfloat162float(lane.b[element % 8]);
    c[element] = lane.c[element % 8];
  }
  for (int element = 0; element < 256; ++element) {
    float sum = c[element];
    for (int k = 0; k < 16; ++k) sum = __fmaf_rn(a[element / 16 * 16 + k], b[k * 16 + element % 16], sum);
    static_cast<Lane*>(lanes[element / 8])->d[element % 8] = sum;
  }
}
}  // namespace simulated

template <typename LayoutA, typename LayoutB>
inline void mma_sync(fragment<accumulator, 16, 16, 16, float>& d, const fragment<matrix_a, 16, 16, 16, __nv_bfloat16, LayoutA>& a,
                     const fragment<matrix_b, 16, 16, 16, __nv_bfloat16, LayoutB>& b,
                     const fragment<accumulator, 16, 16, 16, float>& c) {
  simulated::Lane lane{a.x, b.x, c.x, d.x};
  odmoe_simulated::meet_warp(0xffffffffu, "mma_sync", &lane, simulated::multiply);
}

}  // namespace wmma
}  // namespace nvcuda
