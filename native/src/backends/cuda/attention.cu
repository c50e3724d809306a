// Attention over a KV cache in three steps: scores of all positions; per chunk the exponentials, their sum and the
// value sums; the sums of the chunks, added in order. Each step handles all chunks at once, so that even one row with a long
// context fills the device.
#include "attention_work.h"
#include "grid_launch.h"

namespace odmoe::cuda {
namespace {

constexpr int kFinishThreads = 256;

// A thread adds up one dimension of one head of a row.
__global__ void __launch_bounds__(kFinishThreads) finish_kernel(const AttentionWork work) {
  const int value_dim = work.shape.value_dim;
  const int64_t place = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t index = place / value_dim;
  const int d = static_cast<int>(place - index * value_dim);
  const int64_t row = index / work.shape.heads;
  if (row >= work.n) return;
  const int position = work.rows[row].position;
  const int first_chunk = first_visible(position, work.shape.sliding_window) / kAttentionChunk;
  const int chunks = position / kAttentionChunk - first_chunk + 1;
  const float* const sums = work.value_sums + index * work.chunks * value_dim + d;
  const float* const denominators = work.denominators + index * work.chunks;
  float sum = 0.0f;
  float denominator = 0.0f;
#pragma unroll 8
  for (int chunk = 0; chunk < chunks; ++chunk) {
    sum = sum + sums[int64_t{chunk} * value_dim];
    denominator = denominator + denominators[chunk];
  }
  if (work.shape.sinks != nullptr) denominator = denominator + work.sink_terms[index];
  work.out[place] = divided(sum, denominator);
}

cudaError_t launch_slice(const AttentionWork& work, cudaStream_t stream) {
  cudaError_t error = launch_attention_scores(work, stream);
  if (error == cudaSuccess) error = launch_attention_values(work, stream);
  // If there is only one chunk, it has already written the result.
  if (error != cudaSuccess || work.chunks == 1) return error;
  const int64_t places = int64_t{work.n} * work.shape.heads * work.shape.value_dim;
  return launch_grid(dim3(blocks_for(places, kFinishThreads), 1, 1), kFinishThreads, stream, finish_kernel, work);
}

}  // namespace

uint64_t attention_scratch_bytes(int n, int32_t last_position, const AttentionShape& shape) {
  const int chunks = most_visible_chunks(last_position, shape.sliding_window);
  const int64_t queries = int64_t{attention_slice(n, last_position, shape)} * shape.heads;
  return static_cast<uint64_t>(queries * attention_scratch_floats(chunks, shape.value_dim)) * sizeof(float);
}

cudaError_t launch_attention(float* out, const DeviceAttentionRow* rows, const float* queries, int64_t stride, int n,
                             int32_t last_position, const AttentionShape& shape, void* scratch, cudaStream_t stream) {
  const int slice = attention_slice(n, last_position, shape);
  AttentionWork work = {};
  work.stride = stride;
  work.shape = shape;
  work.chunks = most_visible_chunks(last_position, shape.sliding_window);
  const int64_t query_chunks = int64_t{slice} * shape.heads * work.chunks;
  work.scores = static_cast<float*>(scratch);
  work.greatest = work.scores + query_chunks * kAttentionChunk;
  work.denominators = work.greatest + query_chunks * (kAttentionChunk / kScoreRun);
  work.value_sums = work.denominators + query_chunks;
  work.sink_terms = work.value_sums + query_chunks * shape.value_dim;
  for (int first = 0; first < n; first += slice) {
    work.n = n - first < slice ? n - first : slice;
    work.rows = rows + first;
    work.queries = queries + first * stride;
    work.out = out + int64_t{first} * shape.heads * shape.value_dim;
    const cudaError_t error = launch_slice(work, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace odmoe::cuda
