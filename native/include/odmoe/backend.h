// What a device must be able to do. One implementation per kind of device (cpu and emulated now; cuda later).
// Pointers to float buffers and matrices are device memory: only a backend dereferences them.
// Threading: operators are called from one thread at a time (the device's executor); allocate, release, the copies and
// the writing of weights may be called from any thread at any time.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "odmoe/interruption.h"

namespace odmoe {

// Value types of weights outside the device (row-major, little-endian).
enum class ValueType : uint8_t { bf16, fp16, fp32 };

// Forms in which a backend keeps a matrix. The layout inside is the backend's own. fixed4 holds BF16 values exactly in about 0.77 of
// their size: exponents as codes of 4 bits, the few that have no code apart. Not every matrix fits it (write_rows says so).
enum class WeightFormat : uint8_t { bf16, fp16, fp32, int8, nf4, fixed4 };

// How values are cut into byte planes in a pack (docs/pack-format.md).
//  bf16_e8_sm8: plane 0 exponent byte, plane 1 sign (bit 7) and mantissa (bits 0-6)
//  fp16_hi8_lo8: plane 0 high byte, plane 1 low byte
//  fp32_e8_sm8_r16: plane 0 exponent byte, plane 1 sign and mantissa bits 22-16, plane 2 the low 16 bits
//  fp16_e5_lo8_s1m2: plane 0 exponent (bits 0-4), plane 1 low byte, plane 2 sign (bit 2) and mantissa bits 9 and 8
enum class Split : uint8_t {
  none_bf16,
  none_fp16,
  none_fp32,
  bf16_e8_sm8,
  fp16_hi8_lo8,
  fp32_e8_sm8_r16,
  fp16_e5_lo8_s1m2
};

struct DeviceInfo {
  std::string backend;          // "cpu", "emulated"
  std::string instruction_set;  // "avx512", "avx2", "neon", "scalar"
  int threads = 0;
  uint64_t budget_bytes = 0;  // 0: no limit
  uint64_t used_bytes = 0;
  uint64_t high_water_bytes = 0;
};

struct DeviceBuffer {
  void* data = nullptr;
  uint64_t bytes = 0;
};

// rows x columns weights in a device buffer; y = W x. The buffer is owned elsewhere (a slot is reused for many matrices).
struct Matrix {
  WeightFormat format = WeightFormat::bf16;
  int64_t rows = 0;
  int64_t columns = 0;
  DeviceBuffer storage;
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

// Keys and values of one layer of one sequence: blocks of kAttentionChunk positions, each block
// [kv_heads][kAttentionChunk][head_dim] floats, for keys and for values.
struct KeyValueLayer {
  float* const* key_blocks = nullptr;
  float* const* value_blocks = nullptr;
};

struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int sliding_window = 0;  // 0: none; else position p sees (p - sliding_window, p]
};

// One row of a pass: which sequence's cache it reads, and its position (it sees positions <= position).
struct AttentionRow {
  KeyValueLayer cache;
  int32_t position = 0;
};

// What a call has computed: attention, norms and gate of a layer; one expert; logits.
enum class Work : uint8_t { dense_layer, expert, lm_head };

// What memory is taken for: embedding, LM head and final norm together; all dense weights of a layer; an expert; a slot; what slots
// share; keys and values of one position in one layer.
enum class Holding : uint8_t { outer_weights, dense_layer, expert, slot, slots_shared, key_value_row };
inline constexpr size_t kHoldings = 6;

class Backend {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~Backend() = default;
  virtual DeviceInfo info() const = 0;

  // Time and memory of another device, for a backend that stands for one (emulated). Others take their own, and leave these be.
  // begin_work, await_end: on the executor. A call that was asked for then begins. It has computed this, each of these rows at a time
  // and one after the other: returns when the other device would have, or when interrupted.
  virtual void begin_work(Clock::time_point) {}
  virtual void await_end(Work, std::span<const int> /*rows*/, Interruption&) {}
  // A load that was asked for then has read this share of its bytes: when the other device's link would have. From any thread.
  virtual std::optional<Clock::time_point> end_of_read(double /*share*/, Clock::time_point) { return std::nullopt; }
  // The read in hand is not waited for: the link is free from then on.
  virtual void give_up_read(Clock::time_point) {}
  // Bytes that one counts for; 0: what is allocated counts. hold throws DEVICE_OUT_OF_MEMORY. From any thread.
  virtual uint64_t held_bytes(Holding) const { return 0; }
  virtual void hold(Holding, int64_t /*count*/) {}
  virtual void let_go(Holding, int64_t /*count*/) noexcept {}

  // Memory. allocate throws Error("DEVICE_OUT_OF_MEMORY") when the budget does not hold it; 64-byte aligned, zeroed.
  virtual DeviceBuffer allocate(uint64_t bytes) = 0;
  virtual void release(DeviceBuffer& buffer) noexcept = 0;
  virtual void copy_to_device(void* device, const void* host, uint64_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, uint64_t bytes) = 0;
  // Host memory that files are read into and write_rows takes its planes from (pinned, where that helps). It counts against the
  // budget where device memory is host memory, which is what these two say unless a backend says otherwise.
  virtual DeviceBuffer allocate_staging(uint64_t bytes) { return allocate(bytes); }
  virtual void release_staging(DeviceBuffer& buffer) noexcept { release(buffer); }

  // Weights. matrix_bytes: size of the storage for a matrix. write_rows: rows [first_row, first_row + rows) from planes of
  // row-major values (the rows' own bytes start at planes[i]); converts and quantizes to the matrix's format. Loading FP32 into
  // bf16 or fp16 rounds to nearest even; the caller chooses a lossless format when exactness is asked for.
  // fixed4 alone rounds nothing and may be unable to hold the rows (values that are no BF16, exponents too varied): write_rows then
  // returns false, and the matrix holds nothing. Its rows are written in rising order by one call at a time; those of any other
  // format in any order, and by several threads at a time where their rows differ, wherever the ranges begin and end.
  virtual uint64_t matrix_bytes(WeightFormat format, int64_t rows, int64_t columns) const = 0;
  virtual bool write_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split,
                          const uint8_t* const* planes) = 0;

  // Operators. n: number of rows (tokens) of the batch; every row's result is independent of n.
  // out[n][columns] from rows ids[i] of a matrix (embedding lookup; neither int8 nor nf4).
  virtual void embed(float* out, const Matrix& embedding, const int32_t* host_ids, int n) = 0;
  // out = (in / sqrt(mean(in^2) + epsilon)) * weight, mean by the dot product above.
  virtual void rms_norm(float* out, const float* in, const float* weight, int n, int size, float epsilon) = 0;
  // Products of which none reads what another writes.
  virtual void multiply(const Product* products, int count) = 0;
  void matmul(float* out, int64_t out_stride, const Matrix& weights, const float* in, int64_t in_stride, int n) {
    const Product product{out, out_stride, &weights, in, in_stride, n};
    multiply(&product, 1);
  }
  // Rotates pairs (i, i + head_dim / 2) of each head in place; cos and sin are [n][head_dim / 2] in device memory.
  virtual void rope(float* heads, int64_t stride, const float* cos, const float* sin, int n, int head_count,
                    int head_dim) = 0;
  // Writes row i's key and value (kv_heads x head_dim each) at rows[i].position of its cache.
  virtual void store_key_values(const AttentionRow* host_rows, const float* keys, const float* values, int64_t stride,
                                int n, const AttentionShape& shape) = 0;
  // out[i] = heads x head_dim.
  virtual void attention(float* out, const AttentionRow* host_rows, const float* queries, int64_t stride, int n,
                         const AttentionShape& shape) = 0;
  // experts and weights are host memory: n x k, by falling weight, ties to the lower expert; weights as the softmax over all
  // experts gives them, divided by their sum over the k if normalize.
  virtual void gate(int32_t* host_experts, float* host_weights, const float* logits, int n, int experts, int k,
                    bool normalize) = 0;
  // out[i][j] = silu(gate_up[i][j]) * gate_up[i][size + j].
  virtual void swiglu(float* out, const float* gate_up, int n, int size) = 0;
  // out row out_rows[i] = in row in_rows[i], for n rows of `size` floats; a null list stands for 0, 1, ... n - 1. Gathers an expert's
  // rows and puts its outputs in their places; unless a backend says otherwise, device memory is host memory.
  virtual void copy_rows(float* out, const int32_t* host_out_rows, const float* in, const int32_t* host_in_rows, int n,
                         int size) {
    for (int i = 0; i < n; i++) {
      const int64_t to = host_out_rows != nullptr ? host_out_rows[i] : i;
      const int64_t from = host_in_rows != nullptr ? host_in_rows[i] : i;
      std::memcpy(out + to * size, in + from * size, static_cast<size_t>(size) * sizeof(float));
    }
  }
  // x += y.
  virtual void add(float* x, const float* y, int64_t count) = 0;
  // hidden[i] += sum over rank r in order of weights[i][r] * outputs[i][r]: s = w0 * o0; s = fma(wr, or, s); hidden = hidden + s.
  // outputs is device memory [n][k][size]; weights host memory [n][k].
  virtual void combine(float* hidden, const float* outputs, const float* host_weights, int n, int k, int size) = 0;
};

struct CpuOptions {
  int threads = 0;                       // 0: as many as the process may use
  uint64_t budget_bytes = 0;             // 0: no limit
  std::string instruction_set = "auto";  // "auto", "avx512", "avx2", "neon", "scalar"
};

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

}  // namespace odmoe
