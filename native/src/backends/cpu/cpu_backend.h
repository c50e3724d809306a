// The CPU device: an arena, a thread pool, and the kernels of one instruction set spread over the threads.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "arena.h"
#include "kernel_table.h"
#include "thread_pool.h"

namespace odmoe::cpu {

// For fewer bytes of weights or fewer elements than this, waking threads costs more than it saves.
inline constexpr int64_t kTaskBytes = 64 << 10;
inline constexpr int64_t kTaskElements = 8192;
// Tasks per thread: several, so that a delayed thread does not delay the others.
inline constexpr int64_t kTasksPerThread = 8;

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options);
  ~CpuBackend() override;

  // Memory and weights (cpu_backend.cc).
  DeviceInfo info() const override;
  DeviceBuffer allocate(uint64_t bytes) override { return arena_.allocate(bytes); }
  void release(DeviceBuffer& buffer) noexcept override { arena_.release(buffer); }
  void copy_to_device(void* device, const void* host, uint64_t bytes) override;
  void copy_to_host(void* host, const void* device, uint64_t bytes) override;
  uint64_t matrix_bytes(WeightFormat format, int64_t rows, int64_t columns) const override;
  uint64_t lower_slice_bytes(WeightFormat format, int64_t rows, int64_t columns) const override;
  bool write_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const uint8_t* const* planes) override;
  uint64_t expert_scratch_bytes(WeightFormat format, int64_t rows, int64_t hidden_size, int64_t intermediate_size) const override;
  void embed(float* out, const Matrix& embedding, const int32_t* host_ids, int n) override;

  // Products and attention (cpu_products.cc).
  void multiply(const Product* products, int count) override;
  void store_key_values(const AttentionRow* host_rows, const float* keys, const float* values, int64_t stride, int n,
                        const AttentionShape& shape) override;
  void attention(float* out, const AttentionRow* host_rows, const float* queries, int64_t stride, int n,
                 const AttentionShape& shape) override;

  // Positions that an indexer chooses (cpu_indexer.cc).
  void choose_positions(const ChoiceWork& work) override;
  void choose_blocks(const BlockChoiceWork& work) override;
  void gather_keys(float* out, const AttentionRow* host_rows, const int32_t* chosen, int n, int count, int size) override;

  // Attention to pools (cpu_pools.cc).
  void pool(const PoolWork& work) override;
  void gather_seen(const SeenWork& work) override;

  // Products that are followed by a GLU (cpu_glu.cc).
  void multiply_glu(const Product* products, int count, float* gate_up, const GluShape& shape, const float* const* biases) override;

  // All other operators (cpu_operators.cc).
  void normalize(const NormWork& work) override;
  void layer_norm(float* out, const float* in, const float* weight, const float* bias, int n, int size, float epsilon) override;
  void rotate(const RotaryWork& work) override;
  void router(const RouterWork& work) override;
  void glu(float* out, const float* gate_up, const float* biases, int n, int size, const GluShape& shape) override;
  void copy_vectors(const Vectors& out, const Vectors& in) override;
  void add(float* x, const float* y, int64_t count, float scale) override;
  void scale(float* x, int64_t count, float factor) override;
  void add_bias(const Vectors& x, const float* bias) override;
  void clip(const Vectors& x, float limit) override;
  void gate(const Vectors& x, const Vectors& gates, Gate gate) override;
  void multiply_elements(const Vectors& out, const Vectors& a, const Vectors& b) override;
  void cap_logits(float* x, int64_t count, float divisor, float cap) override;
  void convolve(const ConvolutionWork* works, int count) override;
  void delta_rule(const DeltaWork* works, int count) override;
  void channel_decay(const DecayWork& work) override;
  void state_space(const StateSpaceWork* works, int count) override;
  void combine(const CombineWork& work) override;
  void stream_weights(const StreamWeightsWork& work) override;
  void sum_streams(const StreamSumWork& work) override;
  void mix_streams(const StreamMixWork& work) override;

 private:
  struct PlannedProduct {
    MatmulJob job;
    int64_t tiles;
    int64_t task_tiles;
    int64_t first_task;
    int64_t end_task;
  };

  // The output of a planned product's GLU, and its biases: those of the gate rows and then those of the up rows, or null.
  struct GatedOutput {
    float* out;
    const float* biases;
  };

  // Inputs of products whose matrices have their columns in another order, in this order.
  void reserve_ordered(const Product* products, int count);
  const float* ordered_input(const Product& product);
  static int64_t work_of(const Product* products, int count);
  uint64_t reserve_expansion(const Product* products, int count);
  size_t planned_of(int64_t task) const;
  MatmulScratch product_scratch(int thread, uint64_t expansion) {
    return {thread_scratch(thread), static_cast<uint8_t*>(expansion_scratch_.data) + expansion * static_cast<uint64_t>(thread)};
  }
  PlannedProduct plan_pairs(const Product& product, int64_t first_task, int64_t total_work);
  void glu_rows(const PlannedProduct& planned, const GatedOutput& gated, const GluShape& shape, int64_t begin, int64_t count) const;
  PlannedProduct plan(const Product& product, int64_t first_task, int64_t total_work);
  void plan_batches(const AttentionJob& job, int n);
  void attend_whole(const AttentionJob& job);
  void attend_in_parts(const AttentionJob& job);
  float* thread_scratch(int thread) {
    return reinterpret_cast<float*>(scratch_.data()) + kThreadScratch * static_cast<size_t>(thread);
  }
  // Grows a buffer by doubling, so that a growing sequence causes few allocations; counted in the budget.
  void reserve(DeviceBuffer& buffer, uint64_t bytes);

  // body(begin, end, thread) for ranges of n items of `elements` each.
  template <class Body>
  void for_ranges(int64_t n, int64_t elements, const Body& body) {
    const int64_t items = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, elements));
    pool_.run((n + items - 1) / items, [=, &body](int64_t task, int thread) {
      const int64_t begin = task * items;
      body(begin, std::min(n, begin + items), thread);
    });
  }

  // body(row, begin, end) for pieces of n rows of `size` elements; several small rows form one task.
  template <class Body>
  void for_pieces(int64_t n, int64_t size, const Body& body) {
    const int64_t pieces = std::max<int64_t>(1, (size + kTaskElements - 1) / kTaskElements);
    for_ranges(n * pieces, std::min(size, kTaskElements), [=, &body](int64_t first, int64_t last, int) {
      for (int64_t piece = first; piece < last; ++piece) {
        const int64_t begin = piece % pieces * kTaskElements;
        body(piece / pieces, begin, std::min(size, begin + kTaskElements));
      }
    });
  }

  const KernelTable& kernels_;
  Arena arena_;
  ThreadPool pool_;
  // A few kilobytes per thread, which do not grow; like stacks and code they are outside the budget. Aligned, because storing a
  // vector across two cache lines takes twice as long.
  struct alignas(64) CacheLine {
    float values[16];
  };
  std::vector<CacheLine> scratch_;
  std::vector<PlannedProduct> products_;
  std::vector<GatedOutput> gated_;
  std::vector<AttentionBatch> batches_;
  DeviceBuffer attention_scratch_;
  DeviceBuffer expansion_scratch_;
  DeviceBuffer ordered_inputs_;
  int64_t ordered_floats_ = 0;  // of ordered_inputs_, that planned products use
};

}  // namespace odmoe::cpu
