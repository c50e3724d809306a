// The emulated device: another backend's arithmetic in a profiled device's time and memory.
#include <algorithm>
#include <mutex>
#include <utility>

#include "odmoe/event_time.h"
#include "odmoe/precise_timers.h"
#include "profiled_memory.h"
#include "virtual_timeline.h"

namespace odmoe {
namespace emulated {
namespace {

using Milliseconds = VirtualTimeline::Milliseconds;

class EmulatedBackend final : public Backend {
 public:
  EmulatedBackend(std::unique_ptr<Backend> arithmetic, const Emulation& emulation, uint64_t budget_bytes)
      : arithmetic_(std::move(arithmetic)), emulation_(emulation), memory_(emulation, budget_bytes) {}

  DeviceInfo info() const override {
    DeviceInfo info = arithmetic_->info();
    info.backend = "emulated";
    info.budget_bytes = memory_.budget_bytes();
    info.used_bytes = memory_.used_bytes();
    info.high_water_bytes = memory_.high_water_bytes();
    return info;
  }

  void begin_work(Clock::time_point asked) override { processor_.begin(asked); }

  void await_end(Work work, std::span<const int> rows, Interruption& interruption) override {
    thread_local const bool precise = (use_precise_timers(), true);
    static_cast<void>(precise);
    const OperatorTime& time = time_of(work);
    Milliseconds taken{0};
    for (const int n : rows) taken += Milliseconds(time.overhead_ms + std::max(time.weights_ms, n * time.row_ms));
    const Clock::time_point end = processor_.end_of(taken, Clock::now());
    if (interruption.wait_until(end)) {
      set_event_in_hand(end);
    } else {
      processor_.give_up(Clock::now());
      set_event_in_hand(std::nullopt);
    }
  }

  std::optional<Clock::time_point> end_of_read(double share, Clock::time_point asked) override {
    const std::lock_guard lock(link_mutex_);
    link_.begin(asked);
    return link_.end_of(Milliseconds(share * emulation_.load_ms), Clock::now());
  }

  void give_up_read(Clock::time_point now) override {
    const std::lock_guard lock(link_mutex_);
    link_.give_up(now);
  }

  uint64_t held_bytes(Holding what) const override { return memory_.bytes_of(what); }
  void hold(Holding what, int64_t count) override { memory_.hold(what, count); }
  void let_go(Holding what, int64_t count) noexcept override { memory_.let_go(what, count); }

  DeviceBuffer allocate(uint64_t bytes) override { return arithmetic_->allocate(bytes); }
  void release(DeviceBuffer& buffer) noexcept override { arithmetic_->release(buffer); }
  void copy_to_device(void* device, const void* host, uint64_t bytes) override { arithmetic_->copy_to_device(device, host, bytes); }
  void copy_to_host(void* host, const void* device, uint64_t bytes) override { arithmetic_->copy_to_host(host, device, bytes); }
  void scatter_to_device(std::span<const SpacedRows> pieces, const void* host) override {
    arithmetic_->scatter_to_device(pieces, host);
  }
  void gather_to_host(void* host, std::span<const SpacedRows> pieces) override { arithmetic_->gather_to_host(host, pieces); }
  DeviceBuffer allocate_staging(uint64_t bytes) override { return arithmetic_->allocate_staging(bytes); }
  void release_staging(DeviceBuffer& buffer) noexcept override { arithmetic_->release_staging(buffer); }
  bool counts_staging() const override { return arithmetic_->counts_staging(); }
  std::unique_ptr<ExpertMemory> allocate_experts(const ExpertMemoryShape& shape) override {
    return arithmetic_->allocate_experts(shape);
  }
  uint64_t expert_slot_bytes(const ExpertMemoryShape& shape) const override { return arithmetic_->expert_slot_bytes(shape); }
  uint64_t matrix_bytes(WeightFormat format, int64_t rows, int64_t columns) const override {
    return arithmetic_->matrix_bytes(format, rows, columns);
  }
  bool write_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const uint8_t* const* planes) override {
    return arithmetic_->write_rows(matrix, first_row, rows, split, planes);
  }
  bool decodes(CodecKind codec) const override { return arithmetic_->decodes(codec); }
  void write_coded_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const PlaneSource* planes) override {
    arithmetic_->write_coded_rows(matrix, first_row, rows, split, planes);
  }
  void embed(float* out, const Matrix& embedding, const int32_t* host_ids, int n) override {
    arithmetic_->embed(out, embedding, host_ids, n);
  }
  void rms_norm(float* out, const float* in, const float* weight, int n, int size, float epsilon) override {
    arithmetic_->rms_norm(out, in, weight, n, size, epsilon);
  }
  void multiply(const Product* products, int count) override { arithmetic_->multiply(products, count); }
  void multiply_swiglu(const Product* products, int count, float* gate_up) override {
    arithmetic_->multiply_swiglu(products, count, gate_up);
  }
  void rope(float* heads, int64_t stride, const float* cos, const float* sin, int n, int head_count, int head_dim) override {
    arithmetic_->rope(heads, stride, cos, sin, n, head_count, head_dim);
  }
  void store_key_values(const AttentionRow* host_rows, const float* keys, const float* values, int64_t stride, int n,
                        const AttentionShape& shape) override {
    arithmetic_->store_key_values(host_rows, keys, values, stride, n, shape);
  }
  void attention(float* out, const AttentionRow* host_rows, const float* queries, int64_t stride, int n,
                 const AttentionShape& shape) override {
    arithmetic_->attention(out, host_rows, queries, stride, n, shape);
  }
  void store_and_attend(float* out, const AttentionRow* host_rows, const float* queries, const float* keys, const float* values,
                        int64_t stride, int n, const AttentionShape& shape) override {
    arithmetic_->store_and_attend(out, host_rows, queries, keys, values, stride, n, shape);
  }
  void gate(int32_t* host_experts, float* host_weights, const float* logits, int n, int experts, int k, bool normalize,
            const HostCopy& along) override {
    arithmetic_->gate(host_experts, host_weights, logits, n, experts, k, normalize, along);
  }
  void swiglu(float* out, const float* gate_up, int n, int size) override { arithmetic_->swiglu(out, gate_up, n, size); }
  void copy_rows(float* out, const int32_t* host_out_rows, const float* in, const int32_t* host_in_rows, int n, int size) override {
    arithmetic_->copy_rows(out, host_out_rows, in, host_in_rows, n, size);
  }
  void add(float* x, const float* y, int64_t count) override { arithmetic_->add(x, y, count); }
  void combine(float* hidden, const float* outputs, const float* host_weights, int n, int k, int size) override {
    arithmetic_->combine(hidden, outputs, host_weights, n, k, size);
  }

 private:
  const OperatorTime& time_of(Work work) const {
    if (work == Work::dense_layer) return emulation_.dense_layer;
    return work == Work::expert ? emulation_.expert : emulation_.lm_head;
  }

  const std::unique_ptr<Backend> arithmetic_;
  const Emulation emulation_;
  ProfiledMemory memory_;
  VirtualTimeline processor_;  // the executor's
  std::mutex link_mutex_;
  VirtualTimeline link_;
};

}  // namespace
}  // namespace emulated

std::unique_ptr<Backend> make_emulated_backend(std::unique_ptr<Backend> arithmetic, const Emulation& emulation,
                                               uint64_t budget_bytes) {
  return std::make_unique<emulated::EmulatedBackend>(std::move(arithmetic), emulation, budget_bytes);
}

}  // namespace odmoe
