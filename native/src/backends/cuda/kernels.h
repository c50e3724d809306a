// Launches of the device code. All are asynchronous on `stream`; pointers are device memory unless named host; sizes have been checked.
// Kernels compute by the one arithmetic (odmoe/arithmetic.h). C++17: compiled by nvcc from CUDA 11.8 on.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "odmoe/attention_shape.h"
#include "odmoe/formats.h"
#include "odmoe/operators.h"
#include "odmoe/slices.h"

namespace odmoe::cuda {

struct DeviceTraits {
  int multiprocessors = 0;
  int capability = 0;  // 86 for 8.6
  bool integrated = false;
};

// ---- matmul.cu, tensor_cores.cu, order_columns.cu

// out[i][r] = dot(weights[r], in[i]) for n rows of `in`. Weights have the layout of weight_layout.h.
struct MultiplyJob {
  WeightFormat format = WeightFormat::bf16;
  const uint8_t* weights = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  const float* in = nullptr;
  int64_t in_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  int n = 0;
  const float* biases = nullptr;   // for a GLU: one bias for every row of the weights
  const uint8_t* lower = nullptr;  // of sliced weights, for SliceReading::both
  SliceReading reading = SliceReading::both;
};

// Most jobs of one launch: as many as a kernel's 4 KiB of arguments hold, because latent attention has small jobs for every head.
inline constexpr int kMostMultiplyJobs = 60;

// host_glu: the first half of the weights' rows are gate rows, the second half up rows, and out[i][r] = glu(gate, up) for rows / 2
// outputs; null: plain products. count <= kMostMultiplyJobs, n >= 1.
cudaError_t launch_multiply(const MultiplyJob* host_jobs, int count, const GluShape* host_glu, const DeviceTraits& device,
                            cudaStream_t stream);

// The same by tensor cores, with `in` rounded to BF16; this differs from the one arithmetic. tensor_cores_take: true if they can
// run this job. tensor_core_scratch_bytes: bytes of scratch that they need.
bool tensor_cores_take(const MultiplyJob& job, const DeviceTraits& device);
uint64_t tensor_core_scratch_bytes(const MultiplyJob& job);
cudaError_t launch_tensor_core_multiply(const MultiplyJob& job, const GluShape* host_glu, void* scratch, cudaStream_t stream);

// out[i][j] = in[i][order[j]] for n rows; rows of `out` follow one another. count <= kMostMultiplyJobs.
struct OrderJob {
  float* out = nullptr;
  const float* in = nullptr;
  const uint16_t* order = nullptr;
  int64_t in_stride = 0;
  int columns = 0;
  int n = 0;
};
cudaError_t launch_order_columns(const OrderJob* host_jobs, int count, cudaStream_t stream);

// ---- write_rows.cu, write_slices.cu, write_blocks.cu, embed_rows.cu, embed_blocks.cu

// Rows [first_row, first_row + row_count) of a matrix in any format but fixed4, from planes of row-major values; each plane begins
// with the first of these rows. Quantizes for int8 and nf4; mxfp4, fp8 and sliced formats take only values that are shipped so. A
// null plane of a sliced matrix is not written.
struct RowsToWrite {
  WeightFormat format = WeightFormat::bf16;
  uint8_t* storage = nullptr;
  uint8_t* lower = nullptr;  // of sliced formats
  int64_t rows = 0;          // rows of the matrix
  int64_t columns = 0;
  int64_t first_row = 0;
  int64_t row_count = 0;
  Split split = Split::none_bf16;
  const uint8_t* planes[3] = {nullptr, nullptr, nullptr};
};

cudaError_t launch_write_rows(const RowsToWrite& rows, cudaStream_t stream);
cudaError_t launch_write_slices(const RowsToWrite& rows, cudaStream_t stream);
// Block formats take only a split of their own number.
cudaError_t launch_write_blocks(const RowsToWrite& rows, cudaStream_t stream);

// out[i] = row ids[i] of a matrix, for is_embedding_format.
cudaError_t launch_embed(float* out, WeightFormat format, const uint8_t* storage, int64_t rows, int64_t columns, const int32_t* ids,
                         int n, cudaStream_t stream);
// The same for block formats, in which grouped codes keep the order of their columns. Null ids: 0, 1, ... n - 1.
cudaError_t launch_embed_blocks(float* out, WeightFormat format, const uint8_t* storage, int64_t rows, int64_t columns,
                                const int32_t* ids, int n, cudaStream_t stream);

// ---- decode_fixed4.cu, decode_huffman.cu (docs/pack-format.md, "Codecs")

// Plain bytes [skipped_bytes, skipped_bytes + plain_bytes) of one coded block. Reads nothing outside the block and writes nothing outside
// `plain`, no matter what the block contains.
struct BlockToDecode {
  const uint8_t* coded = nullptr;
  uint64_t coded_bytes = 0;
  uint64_t block_plain_bytes = 0;
  uint64_t skipped_bytes = 0;
  uint64_t plain_bytes = 0;
  uint8_t* plain = nullptr;
};
// Most blocks of one launch: as many as a kernel's 4 KiB of arguments hold, so that a launch has work for the whole device.
inline constexpr int kMostBlocksToDecode = 80;

// `table`: the codec's table of the chunk, device memory. count <= kMostBlocksToDecode.
cudaError_t launch_decode_fixed4(const BlockToDecode* host_blocks, int count, const uint8_t* table, cudaStream_t stream);
cudaError_t launch_decode_huffman(const BlockToDecode* host_blocks, int count, const uint8_t* table, int multiprocessors,
                                  cudaStream_t stream);

// ---- normalize.cu

cudaError_t launch_normalize(const NormWork& work, cudaStream_t stream);
cudaError_t launch_layer_norm(float* out, const float* in, const float* weight, const float* bias, int n, int size, float epsilon,
                              cudaStream_t stream);

// ---- vectors.cu

cudaError_t launch_copy_vectors(const Vectors& out, const Vectors& in, cudaStream_t stream);
cudaError_t launch_rotate(const RotaryWork& work, cudaStream_t stream);
cudaError_t launch_add_bias(const Vectors& x, const float* bias, cudaStream_t stream);
cudaError_t launch_clip(const Vectors& x, float limit, cudaStream_t stream);
cudaError_t launch_gate(const Vectors& x, const Vectors& gates, Gate gate, cudaStream_t stream);
cudaError_t launch_multiply_elements(const Vectors& out, const Vectors& a, const Vectors& b, cudaStream_t stream);

// ---- elementwise.cu

cudaError_t launch_glu(float* out, const float* gate_up, const float* biases, int n, int size, const GluShape& shape,
                       cudaStream_t stream);
cudaError_t launch_add(float* x, const float* y, int64_t count, float scale, cudaStream_t stream);
cudaError_t launch_scale(float* x, int64_t count, float factor, cudaStream_t stream);
cudaError_t launch_cap(float* x, int64_t count, float divisor, float cap, cudaStream_t stream);
// A null list of rows means 0, 1, ... n - 1.
cudaError_t launch_copy_rows(float* out, const int32_t* out_rows, const float* in, const int32_t* in_rows, int n, int size,
                             cudaStream_t stream);

// CombineWork (odmoe/backend.h) with the weights in device memory.
struct CombineJob {
  float* hidden = nullptr;
  const float* outputs = nullptr;
  const float* weights = nullptr;
  const float* always = nullptr;
  const float* always_gates = nullptr;
  int n = 0;
  int k = 0;
  int size = 0;
  float scale = 1;
  bool add = true;
};
cudaError_t launch_combine(const CombineJob& job, cudaStream_t stream);

// ---- residual_streams.cu

cudaError_t launch_stream_weights(const StreamWeightsWork& work, cudaStream_t stream);
cudaError_t launch_sum_streams(const StreamSumWork& work, cudaStream_t stream);
cudaError_t launch_mix_streams(const StreamMixWork& work, cudaStream_t stream);

// ---- recurrence.cu

// The works are in device memory; an extent has their number and the maximum of each of their sizes.
struct ConvolutionExtent {
  int works = 0;
  int rows = 0;
  int taps = 0;
  int64_t channels = 0;
};
cudaError_t launch_convolve(const ConvolutionWork* works, const ConvolutionExtent& extent, cudaStream_t stream);

struct DeltaExtent {
  int works = 0;
  int value_heads = 0;
  int value_dim = 0;
  int key_dim = 0;                // of every work; 0: they differ
  bool decay_by_channel = false;  // of every work
};
cudaError_t launch_delta_rule(const DeltaWork* works, const DeltaExtent& extent, cudaStream_t stream);
cudaError_t launch_channel_decay(const DecayWork& work, cudaStream_t stream);

struct StateSpaceExtent {
  int works = 0;
  int heads = 0;
  int head_dim = 0;
  int state_size = 0;  // of every work; 0: they differ
};
cudaError_t launch_state_space(const StateSpaceWork* works, const StateSpaceExtent& extent, cudaStream_t stream);

// ---- router.cu

inline constexpr int kMostExperts = 1024;
// RouterWork (odmoe/backend.h) with its results in device memory.
struct RouterJob {
  int32_t* experts = nullptr;
  float* weights = nullptr;
  const float* logits = nullptr;
  int n = 0;
  int expert_count = 0;
  int k = 0;
  RouterShape shape;
  const float* choice_bias = nullptr;
  const float* expert_scale = nullptr;
  const int32_t* given = nullptr;  // n x k
  float* scores = nullptr;         // n x expert_count; null: not wanted
};
cudaError_t launch_router(const RouterJob& job, cudaStream_t stream);

// ---- attention.cu

// One row of a pass. The lists of blocks are device memory too.
struct DeviceAttentionRow {
  float* const* key_blocks = nullptr;
  float* const* value_blocks = nullptr;
  int32_t position = 0;
};

cudaError_t launch_store_key_values(const DeviceAttentionRow* rows, const float* keys, const float* values, int64_t stride, int n,
                                    const AttentionShape& shape, cudaStream_t stream);
// Bytes of scratch for n rows; `last_position` is the furthest position among them.
uint64_t attention_scratch_bytes(int n, int32_t last_position, const AttentionShape& shape);
cudaError_t launch_attention(float* out, const DeviceAttentionRow* rows, const float* queries, int64_t stride, int n,
                             int32_t last_position, const AttentionShape& shape, void* scratch, cudaStream_t stream);

}  // namespace odmoe::cuda
