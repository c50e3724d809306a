// The NVIDIA device: its memory, and operators as launches on its compute stream. Only operators with results on the host (router,
// copies to the host) wait for the device; all others return once they are launched.
#pragma once
#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <vector>

#include "argument_ring.h"
#include "device_arena.h"
#include "device_context.h"
#include "host_copies.h"
#include "kernels.h"
#include "odmoe/backend.h"
#include "odmoe/cuda.h"
#include "paged_expert_memory.h"
#include "pinned_buffer.h"
#include "recent_figure.h"
#include "staging_memory.h"
#include "weight_writer.h"

namespace odmoe::cuda {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options);
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  // The driver's figure in it is at most RecentFigure::kOldest old.
  DeviceInfo info() const override;

  DeviceBuffer allocate(uint64_t bytes) override;
  // Waits for all work of the compute stream: operators of a pass that was given up may still run there.
  void release(DeviceBuffer& buffer) noexcept override;
  void copy_to_device(void* device, const void* host, uint64_t bytes) override;
  void copy_to_host(void* host, const void* device, uint64_t bytes) override;
  void copy_on_device(void* to, const void* from, uint64_t bytes) override;
  void scatter_to_device(std::span<const SpacedRows> pieces, const void* host) override;
  void gather_to_host(void* host, std::span<const SpacedRows> pieces) override;
  DeviceBuffer allocate_staging(uint64_t bytes) override;
  DeviceBuffer allocate_host_staging(uint64_t bytes) override;
  void release_staging(DeviceBuffer& buffer) noexcept override;
  uint64_t counted_bytes(uint64_t bytes) const override { return DeviceArena::counted(bytes); }
  bool counts_staging() const override;
  bool writes_from_any_memory() const override { return false; }
  std::unique_ptr<ExpertMemory> allocate_experts(const ExpertMemoryShape& shape) override;
  uint64_t expert_slot_bytes(const ExpertMemoryShape& shape) const override;

  uint64_t expert_scratch_bytes(WeightFormat format, int64_t rows, int64_t hidden_size, int64_t intermediate_size) const override;
  uint64_t matrix_bytes(WeightFormat format, int64_t rows, int64_t columns) const override;
  uint64_t lower_slice_bytes(WeightFormat format, int64_t rows, int64_t columns) const override;
  bool write_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const uint8_t* const* planes) override;
  bool decodes(CodecKind codec) const override;
  void write_coded_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const PlaneSource* planes) override;

  void embed(float* out, const Matrix& embedding, const int32_t* host_ids, int n) override;
  void normalize(const NormWork& work) override;
  void layer_norm(float* out, const float* in, const float* weight, const float* bias, int n, int size, float epsilon) override;
  void multiply(const Product* products, int count) override;
  void multiply_glu(const Product* products, int count, float* gate_up, const GluShape& shape, const float* const* biases) override;
  void rotate(const RotaryWork& work) override;
  void store_key_values(const AttentionRow* host_rows, const float* keys, const float* values, int64_t stride, int n,
                        const AttentionShape& shape) override;
  void attention(float* out, const AttentionRow* host_rows, const float* queries, int64_t stride, int n,
                 const AttentionShape& shape) override;
  void store_and_attend(float* out, const AttentionRow* host_rows, const float* queries, const float* keys, const float* values,
                        int64_t stride, int n, const AttentionShape& shape) override;
  void choose_positions(const ChoiceWork& work) override;
  void choose_blocks(const BlockChoiceWork& work) override;
  void gather_keys(float* out, const AttentionRow* host_rows, const int32_t* chosen, int n, int count, int size) override;
  void router(const RouterWork& work) override;
  void glu(float* out, const float* gate_up, const float* biases, int n, int size, const GluShape& shape) override;
  void copy_rows(float* out, const int32_t* host_out_rows, const float* in, const int32_t* host_in_rows, int n, int size) override;
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
  void pool(const PoolWork& work) override;
  void gather_seen(const SeenWork& work) override;

 private:
  // Rows and their caches' lists of blocks in device memory, for the operator that sent them.
  struct SentRows {
    const DeviceAttentionRow* rows = nullptr;
    int32_t last_position = 0;
  };

  // Plain products where `glu` is null; otherwise a GLU with this shape and the products' biases.
  void multiply_all(const Product* products, int count, const GluShape* glu, const float* const* biases);
  // Gives jobs whose weights have their columns in another order inputs in that order, in scratch.
  void order_columns(MultiplyJob* jobs, int count);
  void choose_experts(const RouterWork& work, uint8_t* bounce);
  // Sends host values; returns their device address for the operator that is launched next.
  template <class T>
  const T* send(const T* host, int64_t count);
  SentRows send_rows(const AttentionRow* host_rows, int n, const AttentionShape& shape);
  void store(const SentRows& sent, const float* keys, const float* values, int64_t stride, int n, const AttentionShape& shape);
  void attend(float* out, const SentRows& sent, const float* queries, int64_t stride, int n, const AttentionShape& shape);
  // Grows the buffer by doubling; its old contents are lost. Returns its memory.
  void* reserve(DeviceBuffer& buffer, uint64_t bytes);
  void* scratch(uint64_t bytes) { return reserve(scratch_, bytes); }

  const bool fast_;
  DeviceContext context_;
  DeviceArena arena_;
  cudaStream_t stream_;  // the context's compute stream
  HostCopies copies_;
  ArgumentRing arguments_;
  StagingMemory staging_;
  ExpertMemoryDirectory experts_;
  WeightWriter writer_;
  std::vector<MultiplyJob> jobs_;
  DeviceBuffer scratch_;
  DeviceBuffer router_results_;
  PinnedBuffer gate_bounce_;
  mutable RecentFigure driver_used_bytes_;  // status asks every second, on the event loop's thread
};

}  // namespace odmoe::cuda
