// New keys and values on their way into the KV cache.
#include "elementwise_code.h"
#include "grid_launch.h"
#include "kernels.h"

namespace odmoe::cuda {
namespace {

constexpr int kThreads = 128;

// Thread (x, y): kWidth dimensions of a head of row y, of its key and its value. Blocks of the cache are aligned to
// 16 bytes.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) store_kernel(const DeviceAttentionRow* rows, const float* keys, const float* values,
                                                         int64_t stride, int kv_heads, int head_dim) {
  const int place = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * kWidth;
  if (place >= kv_heads * head_dim) return;
  const DeviceAttentionRow row = rows[blockIdx.y];
  const int head = place / head_dim;
  const int index = row.position % kAttentionChunk;
  const int64_t to = (int64_t{head} * kAttentionChunk + index) * head_dim + (place - head * head_dim);
  const int64_t from = int64_t{blockIdx.y} * stride + place;
  store_pack(row.key_blocks[row.position / kAttentionChunk] + to, load_pack<kWidth>(keys + from));
  store_pack(row.value_blocks[row.position / kAttentionChunk] + to, load_pack<kWidth>(values + from));
}

}  // namespace

cudaError_t launch_store_key_values(const DeviceAttentionRow* rows, const float* keys, const float* values, int64_t stride, int n,
                                    const AttentionShape& shape, cudaStream_t stream) {
  const bool wide = takes_quads(keys, stride) && takes_quads(values, stride) && shape.head_dim % 4 == 0;
  const int places = shape.kv_heads * shape.head_dim / (wide ? 4 : 1);
  return launch_row_slices(n, [=](int64_t first, int some) {
    return launch_grid(dim3(blocks_for(places, kThreads), static_cast<unsigned>(some), 1), kThreads, stream,
                       wide ? store_kernel<4> : store_kernel<1>, rows + first, keys + first * stride, values + first * stride,
                       stride, shape.kv_heads, shape.head_dim);
  });
}

}  // namespace odmoe::cuda
