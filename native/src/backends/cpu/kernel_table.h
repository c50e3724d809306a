// The functions that are compiled once per instruction set. Kernels run on the calling thread; cpu_backend.cc spreads them over
// threads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "odmoe/arithmetic.h"
#include "odmoe/backend.h"
#include "weight_layout.h"

namespace odmoe::cpu {

// Most tiles and tokens that one pass over the weights multiplies. Up to kMostTokensAtOnce tokens multiply each tile as it streams
// in; for more tokens, a group of tiles goes through the second-level cache.
inline constexpr int kGroupTiles = 16;
inline constexpr int kMostTokensAtOnce = 6;

// Scratch of one thread for KernelTable::matmul (its sums), index_scores, index_dots, router (three arrays of experts) and delta_rule, in floats.
inline constexpr size_t kThreadScratch = size_t{kGroupTiles} * 4 * kMostTokensAtOnce * 32;
inline constexpr int kMaxExperts = static_cast<int>(kThreadScratch / 3);

// Most taps of a causal convolution.
inline constexpr int kMostTaps = 64;

// Bytes of weights that stay in the second-level cache while all tokens pass over them, and the number of tiles in them (at least
// one).
inline constexpr int64_t kGroupBytes = 192 << 10;
// The layout of these weights in that cache.
static constexpr WeightFormat cached_format(WeightFormat format) {
  const bool bf16 = format == WeightFormat::bf16 || format == WeightFormat::fixed4 || format == WeightFormat::mxfp4;
  return bf16 ? WeightFormat::bf16 : WeightFormat::fp32;
}
static constexpr int64_t group_tiles(WeightFormat format, int64_t columns) {
  const int64_t wanted = kGroupBytes / tile_bytes(cached_format(format), columns);
  return wanted < 1 ? 1 : wanted > kGroupTiles ? kGroupTiles : wanted;
}

// Most heads (of one or several rows) that attend together over one key-value head.
inline constexpr int kMaxQueries = 16;

struct MatmulJob {
  WeightFormat format;
  const uint8_t* weights;
  int64_t rows;
  int64_t columns;
  const float* in;
  int64_t in_stride;
  float* out;
  int64_t out_stride;
  int n;
  const uint8_t* lower = nullptr;  // the lower slice of sliced weights
  SliceReading reading = SliceReading::both;
};

struct MatmulScratch {
  float* sums;        // kThreadScratch floats
  uint8_t* expanded;  // expansion_bytes()
};

// Bytes of an expanded group of tiles; 0 for BF16, whose tiles are multiplied as they are.
static constexpr uint64_t expansion_bytes(WeightFormat format, int64_t columns, int n) {
  // A product of few tokens expands its weights as they stream in, or reads them as they are.
  if (format == WeightFormat::bf16 || n <= kMostTokensAtOnce) return 0;
  return static_cast<uint64_t>(group_tiles(format, columns) * tile_bytes(cached_format(format), columns));
}

// Bytes of scratch for KernelTable::write_rows.
static constexpr size_t write_scratch_bytes(WeightFormat format, int64_t columns) {
  if (format == WeightFormat::fixed4) return static_cast<size_t>(2 * kTileRows * column_blocks(columns) * kLanes);
  return static_cast<size_t>(columns) * sizeof(float);
}

struct AttentionJob {
  float* out;
  const AttentionRow* rows;
  const float* queries;
  int64_t stride;
  AttentionShape shape;
};

// Heads that share a key-value head, of rows with one cache: at most kMaxQueries queries.
struct AttentionBatch {
  int first_row;
  int rows;
  int first_head;
  int heads;
  int64_t positions;  // most positions that its rows see
  float* scratch;     // attention_scratch() floats
};

// Floats of scratch for a batch whose rows see up to `positions` positions: four padded keys, and for each query a denominator,
// value sums, the padded query and scores.
static constexpr int64_t attention_scratch(const AttentionShape& shape, int64_t positions) {
  const int64_t padded_dim = column_blocks(shape.head_dim) * kLanes;
  const int64_t padded_value_dim = column_blocks(shape.value_dim) * kLanes;
  const int64_t chunks = (positions + kAttentionChunk - 1) / kAttentionChunk + 1;
  return kMaxQueries * (kLanes + padded_value_dim + padded_dim + chunks * kAttentionChunk) + kTileRows * padded_dim;
}

// An indexer's scores of the first `positions` positions of one block of keys, for one row; of a block indexer, one score a head.
struct IndexJob {
  float* scores;  // kAttentionChunk floats, for each head with its own score
  float* keys;    // [kAttentionChunk][head_dim]
  const float* queries;
  const float* weights;  // null for a block indexer
  int heads;
  int head_dim;
  int positions;
  int64_t head_stride = 0;  // from the scores of a head to those of the next one
};

// Most dimensions of an indexer's head.
inline constexpr int kMostIndexDimensions = 1024;

// `count` elements of one row of a GLU; the biases are both present or both null.
struct GluJob {
  float* out;
  const float* gate;
  const float* up;
  const float* gate_bias;
  const float* up_bias;
  int64_t count;
  bool tanh;
  float alpha;
  float limit;
  float up_offset;
  bool limits_activation;
};

// out[i][j] = sum over t of left(i, t) * right[t][j], by fma in rising t from +0; left(i, t) = left[i * left_row + t * left_term].
struct ProductSums {
  float* out;
  int64_t out_row;
  const float* left;
  int64_t left_row;
  int64_t left_term;
  const float* right;
  int64_t right_term;
  int64_t columns;
  int64_t terms;
};

struct KernelTable {
  const char* instruction_set;

  void (*matmul)(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch);
  // Vectors [begin, end), counted over all rows.
  void (*normalize)(const NormWork& work, int64_t begin, int64_t end);
  void (*rotate)(const RotaryWork& work, int64_t begin, int64_t end);
  void (*layer_norm)(float* out, const float* in, const float* weight, const float* bias, int64_t size, float epsilon);
  // The three steps of a batch's attention, one after the other: scores of positions [begin, end), weights of queries, values of whole
  // chunks of positions (in rising order) and of some dimensions.
  void (*attention_scores)(const AttentionJob& job, const AttentionBatch& batch, int64_t begin, int64_t end);
  void (*attention_weights)(const AttentionJob& job, const AttentionBatch& batch, int begin, int end);
  void (*attention_values)(const AttentionJob& job, const AttentionBatch& batch, int64_t begin, int64_t end, int64_t first_dim,
                           int64_t last_dim);
  // scratch: kThreadScratch floats.
  void (*index_scores)(const IndexJob& job, float* scratch);
  // One row. scratch: kThreadScratch floats.
  void (*router)(const RouterWork& work, int64_t row, float* scratch);
  void (*glu)(const GluJob& job);
  // out may be in.
  void (*relu_squared)(float* out, const float* in, int64_t count);
  // Like the operators of Backend, for `count` elements.
  void (*add)(float* x, const float* y, int64_t count, float scale);
  void (*scale)(float* x, int64_t count, float factor);
  void (*clip)(float* x, int64_t count, float limit);
  void (*gate)(float* x, const float* gates, int64_t count, Gate kind);
  void (*gate_all)(float* x, float gate, int64_t count, Gate kind);
  void (*multiply_elements)(float* out, const float* a, const float* b, int64_t count);
  void (*cap_logits)(float* x, int64_t count, float divisor, float cap);
  // Elements [begin, end) of one row.
  void (*combine)(const CombineWork& work, int64_t row, int64_t begin, int64_t end);
  // All rows of channels [begin, end).
  void (*convolve)(const ConvolutionWork& work, int64_t begin, int64_t end);
  // All rows of value dimensions [begin, end) of one value head. scratch: kThreadScratch floats.
  void (*delta_rule)(const DeltaWork& work, int64_t head, int64_t begin, int64_t end, float* scratch);
  // Values [begin, end) of one vector, of head `head`.
  void (*channel_decay)(const DecayWork& work, float* values, int64_t head, int64_t begin, int64_t end);
  // All rows of dimensions [begin, end) of one head. scratch: kThreadScratch floats.
  void (*state_space)(const StateSpaceWork& work, int64_t head, int64_t begin, int64_t end, float* scratch);
  // One row.
  void (*stream_weights)(const StreamWeightsWork& work, int64_t row);
  // Elements [begin, end) of one row.
  void (*sum_streams)(const StreamSumWork& work, int64_t row, int64_t begin, int64_t end);
  void (*mix_streams)(const StreamMixWork& work, int64_t row, int64_t begin, int64_t end);

  // out[i] = exp((x[i] - highest) / divisor).
  void (*exponentials)(float* out, const float* x, int64_t count, float highest, float divisor);
  // Rows [begin, end).
  void (*sum_products)(const ProductSums& work, int64_t begin, int64_t end);
  // sum(x), from the 32 partial sums.
  float (*sum)(const float* x, int64_t count);

  // One row of a matrix whose format is_embedding_format, as FP32.
  void (*read_row)(float* out, const Matrix& matrix, int64_t row);
  // Like Backend::write_rows; scratch: write_scratch_bytes().
  bool (*write_rows)(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const uint8_t* const* planes, uint8_t* scratch);

  // For measure_machine: reads all bytes (a multiple of 4096) and returns a value that depends on them; runs independent fused
  // multiply-adds and returns the number of operations (their result goes to sink).
  uint64_t (*read_bytes)(const uint8_t* data, uint64_t bytes);
  double (*multiply_add)(int64_t iterations, float* sink);
  // Every head's dots by themselves. scratch: kThreadScratch floats.
  void (*index_dots)(const IndexJob& job, float* scratch);
  // Channels [begin, end) of one row's entry.
  void (*pool)(const PoolWork& work, int64_t row, int64_t begin, int64_t end);
};

// The instruction sets that this build and this processor have, widest first; the last is always "scalar". Null-terminated.
const KernelTable* const* usable_kernels();

// "auto": the widest set, or the one that ODMOE_INSTRUCTION_SET in the environment names. Throws DEVICE_UNAVAILABLE.
const KernelTable& choose_kernels(const std::string& instruction_set);

namespace avx512 {
extern const KernelTable kKernels;
}
namespace avx2 {
extern const KernelTable kKernels;
}
namespace neon {
extern const KernelTable kKernels;
}
namespace scalar {
extern const KernelTable kKernels;
}

}  // namespace odmoe::cpu
