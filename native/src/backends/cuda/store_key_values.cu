// Writes new keys and values into the KV cache.
#include "elementwise_code.h"
#include "grid_launch.h"
#include "kernels.h"

namespace odmoe::cuda {
namespace {

constexpr int kThreads = 128;

// Source and destination of the heads of a row's keys or values.
struct Heads {
  const float* from;
  int64_t stride;
  int dim;
};

template <int kWidth>
__device__ __forceinline__ void store_place(const Heads& heads, float* const* blocks, int position, int place) {
  const int head = place / heads.dim;
  const int64_t to = (int64_t{head} * kAttentionChunk + position % kAttentionChunk) * heads.dim + (place - head * heads.dim);
  store_pack(blocks[position / kAttentionChunk] + to, load_pack<kWidth>(heads.from + int64_t{blockIdx.y} * heads.stride + place));
}

// Thread (x, y): kWidth dimensions of a head of row y, first those of all keys, then of all values. Blocks of the cache are aligned to
// 16 bytes.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    store_kernel(const DeviceAttentionRow* rows, const Heads keys, const Heads values, int kv_heads, bool values_too) {
  const int place = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * kWidth;
  const int key_floats = kv_heads * keys.dim;
  const DeviceAttentionRow row = rows[blockIdx.y];
  if (place < key_floats) {
    store_place<kWidth>(keys, row.key_blocks, row.position, place);
  } else if (values_too && place - key_floats < kv_heads * values.dim) {
    store_place<kWidth>(values, row.value_blocks, row.position, place - key_floats);
  }
}

}  // namespace

cudaError_t launch_store_key_values(const DeviceAttentionRow* rows, const float* keys, const float* values, int64_t stride, int n,
                                    const AttentionShape& shape, cudaStream_t stream) {
  const bool values_too = !shape.values_in_keys;
  const bool wide = takes_quads(keys, stride) && shape.head_dim % 4 == 0 &&
                    (!values_too || (takes_quads(values, stride) && shape.value_dim % 4 == 0));
  const int floats = shape.kv_heads * (shape.head_dim + (values_too ? shape.value_dim : 0));
  return launch_row_slices(n, [=](int64_t first, int some) {
    const Heads key_heads{keys + first * stride, stride, shape.head_dim};
    const Heads value_heads{values_too ? values + first * stride : nullptr, stride, shape.value_dim};
    return launch_grid(dim3(blocks_for(floats / (wide ? 4 : 1), kThreads), static_cast<unsigned>(some), 1), kThreads, stream,
                       wide ? store_kernel<4> : store_kernel<1>, rows + first, key_heads, value_heads, shape.kv_heads, values_too);
  });
}

}  // namespace odmoe::cuda
