// The interface of a device. Each kind of device has one implementation: cpu, cuda.
// Pointers to float buffers and matrices are device memory: only a backend dereferences them.
// Threading: operators are called from one thread at a time (the device's executor); allocate, release, the copies and
// the writing of weights may be called from any thread at any time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "odmoe/arithmetic.h"
#include "odmoe/attention_shape.h"
#include "odmoe/expert_memory.h"
#include "odmoe/formats.h"
#include "odmoe/memory.h"
#include "odmoe/operators.h"
#include "odmoe/slices.h"

namespace odmoe {

struct DeviceInfo {
  std::string backend;          // "cpu", "cuda"
  std::string instruction_set;  // "avx512", "avx2", "neon", "scalar"; cuda: the compute capability, "sm_86"
  int threads = 0;              // cuda: its multiprocessors
  uint64_t budget_bytes = 0;    // 0: no limit
  uint64_t used_bytes = 0;      // cuda: includes the driver's context
  uint64_t high_water_bytes = 0;
  std::string name;                           // the device's model, "NVIDIA GeForce RTX 3090"; empty for a processor
  uint64_t context_bytes = 0;                 // part of used_bytes: the driver takes it before anything is allocated
  std::optional<uint64_t> driver_used_bytes;  // device memory of this process, as the driver reports it
  bool paged_experts = false;                 // each expert has its own addresses (odmoe/expert_memory.h)
};

// rows x columns weights in a device buffer; y = W x. The matrix does not own the buffer (a slot is reused for many matrices).
struct Matrix {
  WeightFormat format = WeightFormat::bf16;
  int64_t rows = 0;
  int64_t columns = 0;
  DeviceBuffer storage;  // sliced formats: the upper slice
  DeviceBuffer lower{};  // sliced formats: the lower slice; empty: not loaded
  SliceReading reading = SliceReading::both;
};

// out[i][r] = dot(weights[r], in[i]) for n rows of `in`; rows are out_stride and in_stride floats apart.
struct Product {
  float* out = nullptr;
  int64_t out_stride = 0;
  const Matrix* weights = nullptr;
  const float* in = nullptr;
  int64_t in_stride = 0;
  int n = 0;
};

// Keys and values of one layer of one sequence: blocks of kAttentionChunk positions, each block [kv_heads][kAttentionChunk][head_dim]
// floats for keys, [kv_heads][kAttentionChunk][value_dim] for values (none where values are in the keys).
struct KeyValueLayer {
  float* const* key_blocks = nullptr;
  float* const* value_blocks = nullptr;
};

// One row of a pass: the cache that it reads, and its position (it sees positions <= position).
struct AttentionRow {
  KeyValueLayer cache;
  int32_t position = 0;
};

// A block of a coded plane (docs/pack-format.md, "A coded chunk"), in staging memory. Its sizes have been checked; its contents
// have not.
struct CodedBlock {
  const uint8_t* bytes = nullptr;
  uint64_t coded_bytes = 0;
  uint64_t plain_bytes = 0;  // equal to coded_bytes: stored plain
};

// One plane of the rows to write: plain, or coded in blocks; the first block holds the first row.
struct PlaneSource {
  const uint8_t* plain = nullptr;  // start of the rows' own bytes; null: coded
  CodecKind codec = CodecKind::raw;
  const uint8_t* table = nullptr;  // the chunk's table
  const CodedBlock* blocks = nullptr;
  int block_count = 0;
  uint64_t skipped_bytes = 0;  // plain bytes of the first block that belong to rows before the first written row
};

// Rows of device memory with a constant distance.
struct SpacedRows {
  void* first = nullptr;
  int64_t count = 0;
  uint64_t row_bytes = 0;
  uint64_t pitch_bytes = 0;  // from the start of a row to the start of the next one
};

struct HostCopy {
  void* host = nullptr;
  const void* device = nullptr;
  uint64_t bytes = 0;
};

// Inputs and outputs of a router. experts and weights are host memory: n x k, by falling choice score; a tie goes to the lower
// expert. The operator also copies `along`, which earlier operators have written, to the host before it returns: one wait serves
// both.
struct RouterWork {
  int32_t* host_experts = nullptr;
  float* host_weights = nullptr;
  const float* logits = nullptr;  // n x experts
  int n = 0;
  int experts = 0;
  int k = 0;
  RouterShape shape;
  const float* choice_bias = nullptr;   // device memory, `experts` floats; null: none
  const float* expert_scale = nullptr;  // likewise
  const int32_t* given = nullptr;  // device memory, n x k: the experts of each row, within `experts`; null: the scores choose them
  HostCopy along;
  // Host memory, n x experts; null: not wanted. scores: what weights are made from. A sparsemixer has none.
  float* host_logits = nullptr;
  float* host_scores = nullptr;
};

// Rows choose the positions that they see by the keys of an indexer (arithmetic.h). chosen: device memory, n x count; row i gets `count`
// positions in rising order, but nothing where its position is less than count, as it sees all.
struct ChoiceWork {
  int32_t* chosen = nullptr;
  const AttentionRow* host_rows = nullptr;  // the index keys are the caches' keys, of one key-value head
  const float* queries = nullptr;           // n x heads x head_dim
  const float* weights = nullptr;           // n x heads
  int n = 0;
  int heads = 0;
  int head_dim = 0;
  int count = 0;
};

// Rows choose blocks of positions by the keys of a block indexer (arithmetic.h), by themselves for each head of the queries. chosen: device
// memory, n x heads x (blocks * block_size); a row gets the positions of its chosen blocks in rising order, its own position in place of
// later ones and behind the last one, but nothing where it sees all. blocks * block_size is at most 2^30.
struct BlockChoiceWork {
  int32_t* chosen = nullptr;
  const AttentionRow* host_rows = nullptr;  // the index keys are the caches' keys, of one key-value head
  const float* queries = nullptr;           // n x heads x head_dim
  int n = 0;
  int heads = 0;
  int head_dim = 0;
  int block_size = 0;
  int blocks = 0;
  int local_blocks = 0;  // at most `blocks`

  int count() const { return blocks * block_size; }
};

// Entries of pools of positions (arithmetic.h), each of the pool that ends with a row's position. key_blocks are planes of kAttentionChunk
// vectors of `size` floats: values and then gates; where pools overlap, values for the pool behind, own values, gates for the pool behind,
// own gates.
struct PoolWork {
  float* out = nullptr;  // n x size
  const AttentionRow* host_rows = nullptr;
  const float* gate_biases = nullptr;  // positions x (1, or 2 where pools overlap) x size
  int n = 0;
  int size = 0;
  int positions = 0;  // of a pool
  bool overlaps = false;
};

// Positions of which the entry of the pool that ends at `last` is made.
constexpr int64_t pooled_positions(const PoolWork& work, int64_t last) {
  return (work.overlaps && last + 1 >= 2 * int64_t{work.positions} ? 2 : 1) * int64_t{work.positions};
}

// Copies what rows of attention to pools see: entries of complete pools in rising order, then the keys of the last `window` positions. A row
// with more than `entries` complete pools sees the chosen ones. key_blocks have a key of `size` floats for each position, value_blocks
// an entry at the last position of each pool. With whole pools it copies the keys of all their positions in place of an entry, and then those of
// the row's own pool where that is not complete.
struct SeenWork {
  float* out = nullptr;  // row i begins at i * out_stride
  int64_t out_stride = 0;
  const AttentionRow* host_rows = nullptr;
  const int32_t* chosen = nullptr;  // device memory, n x entries; null: no row has more
  int n = 0;
  int size = 0;
  int positions = 0;  // of a pool
  int entries = 0;
  int window = 0;
  bool whole_pools = false;  // there are no entries and no window

  int64_t furthest() const {
    int64_t position = -1;
    for (int i = 0; i < n; i++) position = host_rows[i].position > position ? host_rows[i].position : position;
    return position;
  }
};

constexpr int64_t seen_entries(const SeenWork& work, int64_t position) {
  const int64_t complete = (position + 1) / work.positions;
  return complete < work.entries ? complete : work.entries;
}
constexpr int64_t seen_window(const SeenWork& work, int64_t position) {
  if (work.whole_pools) return (position + 1) % work.positions;
  return position + 1 < work.window ? position + 1 : work.window;
}
// Vectors that a row at this position sees.
constexpr int64_t most_seen(const SeenWork& work, int64_t position) {
  return seen_entries(work, position) * (work.whole_pools ? work.positions : 1) + seen_window(work, position);
}
// Vectors that no row up to this position sees more than. The positions of unfinished pools come and go.
constexpr int64_t seen_room(const SeenWork& work, int64_t position) {
  if (!work.whole_pools) return most_seen(work, position);
  const int64_t most = (int64_t{work.entries} + 1) * work.positions - 1;
  return position + 1 < most ? position + 1 : most;
}

// Floats that the keys of `count` chosen positions take: they lie in whole blocks of kAttentionChunk positions.
constexpr int64_t gathered_floats(int64_t count, int64_t size) {
  return (count + kAttentionChunk - 1) / kAttentionChunk * kAttentionChunk * size;
}

// s = sum over rank r in order of weights[i][r] * outputs[i][r] (s = w0 * o0; s = fma(wr, or, s)), and after the ranks fma(g,
// always, s) with g = sigmoid(always_gates[i]), or 1 without gates; without ranks s = g * always. Then hidden = hidden + s * scale,
// or hidden = s.
struct CombineWork {
  float* hidden = nullptr;
  const float* outputs = nullptr;       // device memory [n][k][size]
  const float* host_weights = nullptr;  // [n][k]
  const float* always = nullptr;        // device memory [n][size]; null: none
  const float* always_gates = nullptr;  // device memory [n]; null: 1
  int n = 0;
  int k = 0;
  int size = 0;
  float scale = 1;  // 1 is left out
  bool add = true;
};

// Bytes of all logits of a router's rows, and of all their scores.
inline uint64_t logit_bytes(const RouterWork& work) {
  return static_cast<uint64_t>(work.n) * static_cast<uint64_t>(work.experts) * sizeof(float);
}

// Throws MODEL_UNSUPPORTED for a choice that a router with room for `most_experts` experts cannot make.
void check_router(const RouterWork& work, int most_experts);

class Backend {
 public:
  virtual ~Backend() = default;
  virtual DeviceInfo info() const = 0;

  // Memory. allocate throws Error(ErrorCode::device_out_of_memory) when the budget has no room; memory is 64-byte aligned and
  // zeroed.
  virtual DeviceBuffer allocate(uint64_t bytes) = 0;
  virtual void release(DeviceBuffer& buffer) noexcept = 0;
  virtual void copy_to_device(void* device, const void* host, uint64_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, uint64_t bytes) = 0;
  // The two ranges do not overlap. By default device memory is host memory.
  virtual void copy_on_device(void* to, const void* from, uint64_t bytes) { std::memcpy(to, from, bytes); }
  // One copy for rows that are apart on the device; on the host they follow one another, piece by piece.
  virtual void scatter_to_device(std::span<const SpacedRows> pieces, const void* host);
  virtual void gather_to_host(void* host, std::span<const SpacedRows> pieces);
  // Host memory into which files are read, and from which write_rows takes planes (pinned, where that helps). It counts against the
  // budget where device memory is host memory; these two default implementations assume that.
  virtual DeviceBuffer allocate_staging(uint64_t bytes) { return allocate(bytes); }
  // Staging for data that the host holds outside the budget (worker.host_memory). It is released like other staging.
  virtual DeviceBuffer allocate_host_staging(uint64_t bytes) { return allocate_staging(bytes); }
  virtual void release_staging(DeviceBuffer& buffer) noexcept { release(buffer); }
  // Bytes of the budget that a buffer of `bytes` takes: devices give memory in larger units.
  virtual uint64_t counted_bytes(uint64_t bytes) const { return bytes; }
  // True if staging counts against the budget.
  virtual bool counts_staging() const { return true; }
  // True if write_rows and write_coded_rows take planes from any host memory, not only from staging.
  virtual bool writes_from_any_memory() const { return true; }

  // Memory for `slots` experts at a time, out of `experts` in all. Throws DEVICE_OUT_OF_MEMORY.
  virtual std::unique_ptr<ExpertMemory> allocate_experts(const ExpertMemoryShape& shape);
  // Bytes of the budget that one slot of this memory takes.
  virtual uint64_t expert_slot_bytes(const ExpertMemoryShape& shape) const { return shape.gate_up_bytes + shape.down_bytes; }
  // Scratch that an expert's operators take from the budget when they first run on `rows` rows; slots share it.
  virtual uint64_t expert_scratch_bytes(WeightFormat /*format*/, int64_t /*rows*/, int64_t /*hidden_size*/,
                                        int64_t /*intermediate_size*/) const {
    return 0;
  }

  // Weights. matrix_bytes: size of the storage for a matrix. write_rows: rows [first_row, first_row + rows) from planes of
  // row-major values (the rows' own bytes start at planes[i]); converts and quantizes to the matrix's format. Loading FP32 into
  // bf16 or fp16 rounds to nearest even; the caller chooses a lossless format where results must be exact.
  // Only fixed4 rounds nothing and may be unable to hold the rows (values that are not BF16, too many different exponents):
  // write_rows then returns false, and the matrix holds nothing. fixed4 rows are written in rising order by one call at a time.
  // Rows of any other format are written in any order; several threads may write different rows at a time, with any bounds of their
  // ranges.
  // Sliced rows come from their own split only; a null plane is not written, so that the slices can come one after the other.
  virtual uint64_t matrix_bytes(WeightFormat format, int64_t rows, int64_t columns) const = 0;
  // Bytes of the lower slice (Matrix::lower) of a sliced matrix.
  virtual uint64_t lower_slice_bytes(WeightFormat format, int64_t rows, int64_t columns) const = 0;
  virtual bool write_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const uint8_t* const* planes) = 0;
  // True if write_coded_rows takes blocks of this codec.
  virtual bool decodes(CodecKind) const { return false; }
  // Like write_rows, but some planes are coded, by a codec that the device decodes; never into fixed4. The caller may reuse the
  // planes when it returns; rows of a matrix in an ExpertMemory may then still be in transfer, and its reads are ordered behind
  // them. Damage in a coded block is not detected and gives wrong weights, so check the checksum before the expert is used.
  virtual void write_coded_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const PlaneSource* planes);

  // Operators. n: number of rows (tokens) of the batch; every row's result is independent of n.
  // out[n][columns] from rows ids[i] of a matrix (embedding lookup, for is_embedding_format).
  virtual void embed(float* out, const Matrix& embedding, const int32_t* host_ids, int n) = 0;
  // RMS norms of hidden states and of heads, and divisions by the L2 norm.
  virtual void normalize(const NormWork& work) = 0;
  // out = (in - mean) / sqrt(dot(in - mean, in - mean) / size + epsilon) * weight + bias, mean = sum(in) / size; without a bias where
  // it is null. out may be in.
  virtual void layer_norm(float* out, const float* in, const float* weight, const float* bias, int n, int size, float epsilon) = 0;
  // Independent products: none reads a result of another.
  virtual void multiply(const Product* products, int count) = 0;
  void matmul(float* out, int64_t out_stride, const Matrix& weights, const float* in, int64_t in_stride, int n) {
    const Product product{out, out_stride, &weights, in, in_stride, n};
    multiply(&product, 1);
  }
  // A GLU of products whose weights are gate rows and, behind them, equally many up rows: out[i][j] = glu(gate[i][j], up[i][j]).
  // Output rows follow one another: out_stride is half the weights' rows; gate_up is scratch for all rows x (gate and up). biases:
  // one device pointer per product, to the biases of the gate rows and behind them of the up rows; null where the shape has none.
  // Without a gate out has the products' rows, each value activated, and out_stride is the weights' rows.
  virtual void multiply_glu(const Product* products, int count, float* gate_up, const GluShape& shape, const float* const* biases);
  virtual void rotate(const RotaryWork& work) = 0;
  // Writes row i's key and value (kv_heads x head_dim and x value_dim) at rows[i].position of its cache.
  virtual void store_key_values(const AttentionRow* host_rows, const float* keys, const float* values, int64_t stride, int n,
                                const AttentionShape& shape) = 0;
  // out[i] = heads x value_dim.
  virtual void attention(float* out, const AttentionRow* host_rows, const float* queries, int64_t stride, int n,
                         const AttentionShape& shape) = 0;
  // store_key_values and then attention for the same rows; queries, keys and values have one stride.
  virtual void store_and_attend(float* out, const AttentionRow* host_rows, const float* queries, const float* keys,
                                const float* values, int64_t stride, int n, const AttentionShape& shape);
  virtual void choose_positions(const ChoiceWork& work) = 0;
  // Copies the keys (of one key-value head of `size` dimensions) at chosen[i][j] of row i's cache to out + i * gathered_floats(count, size),
  // for n rows.
  virtual void gather_keys(float* out, const AttentionRow* host_rows, const int32_t* chosen, int n, int count, int size) = 0;
  virtual void router(const RouterWork& work) = 0;
  // out[i][j] = glu(gate_up[i][j], gate_up[i][size + j]); biases are added first: 2 x size floats for all rows, or null. Without a gate
  // out[i][j] = act(gate_up[i][j]) for 2 x size values of a row; then out may be gate_up, and there are no biases.
  virtual void glu(float* out, const float* gate_up, const float* biases, int n, int size, const GluShape& shape) = 0;
  // out row out_rows[i] = in row in_rows[i], for n rows of `size` floats; a null list means 0, 1, ... n - 1. It gathers an expert's
  // rows and puts its outputs in their places. By default device memory is host memory.
  virtual void copy_rows(float* out, const int32_t* host_out_rows, const float* in, const int32_t* host_in_rows, int n, int size) {
    for (int i = 0; i < n; i++) {
      const int64_t to = host_out_rows != nullptr ? host_out_rows[i] : i;
      const int64_t from = host_in_rows != nullptr ? host_in_rows[i] : i;
      std::memcpy(out + to * size, in + from * size, static_cast<size_t>(size) * sizeof(float));
    }
  }
  // out = in, vector by vector; they do not overlap.
  virtual void copy_vectors(const Vectors& out, const Vectors& in) = 0;
  // x = x + y * scale; scale 1 is left out.
  virtual void add(float* x, const float* y, int64_t count, float scale) = 0;
  // x = x * factor.
  virtual void scale(float* x, int64_t count, float factor) = 0;
  // x = x + bias, for each vector.
  virtual void add_bias(const Vectors& x, const float* bias) = 0;
  // Limits x to +-limit; NaN stays.
  virtual void clip(const Vectors& x, float limit) = 0;
  // x = x * act(gates), vector by vector; both have the same rows, vectors and size, or the gates have one value for a vector.
  virtual void gate(const Vectors& x, const Vectors& gates, Gate gate) = 0;
  // out = a * b, vector by vector. out may be a or b.
  virtual void multiply_elements(const Vectors& out, const Vectors& a, const Vectors& b) = 0;
  // x = x / divisor, then cap * tanh(x / cap) where the cap is not 0.
  virtual void cap_logits(float* x, int64_t count, float divisor, float cap) = 0;
  virtual void convolve(const ConvolutionWork* works, int count) = 0;
  virtual void delta_rule(const DeltaWork* works, int count) = 0;
  virtual void channel_decay(const DecayWork& work) = 0;
  virtual void state_space(const StateSpaceWork* works, int count) = 0;
  virtual void combine(const CombineWork& work) = 0;
  virtual void pool(const PoolWork& work) = 0;
  virtual void gather_seen(const SeenWork& work) = 0;
  virtual void choose_blocks(const BlockChoiceWork& work) = 0;
  virtual void stream_weights(const StreamWeightsWork& work) = 0;
  virtual void sum_streams(const StreamSumWork& work) = 0;
  virtual void mix_streams(const StreamMixWork& work) = 0;
};

struct CpuOptions {
  int threads = 0;                       // 0: as many as the process may use
  uint64_t budget_bytes = 0;             // 0: no limit
  std::string instruction_set = "auto";  // "auto", "avx512", "avx2", "neon", "scalar"
};

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

}  // namespace odmoe
