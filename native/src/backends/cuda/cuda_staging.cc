// The CUDA backend's memory for staging and for the slots of experts.
#include "cuda_backend.h"

#include <algorithm>

#include "slot_memory.h"

namespace odmoe::cuda {

DeviceBuffer CudaBackend::allocate_staging(uint64_t bytes) {
  context_.enter();
  return staging_.allocate(bytes);
}

DeviceBuffer CudaBackend::allocate_host_staging(uint64_t bytes) {
  context_.enter();
  return staging_.allocate(bytes, false);
}

void CudaBackend::release_staging(DeviceBuffer& buffer) noexcept {
  cudaSetDevice(context_.device());
  staging_.release(buffer);
}

bool CudaBackend::counts_staging() const { return staging_.counts(); }

std::unique_ptr<ExpertMemory> CudaBackend::allocate_experts(const ExpertMemoryShape& shape) {
  context_.enter();
  std::unique_ptr<SlotMemory> memory = context_.paged_memory()
                                           ? make_mapped_slots(arena_, context_.device(), context_.mapping_granularity(), shape)
                                           : make_fixed_slots(arena_, shape);
  return std::make_unique<PagedExpertMemory>(context_, experts_, std::move(memory), shape.slots);
}

uint64_t CudaBackend::expert_slot_bytes(const ExpertMemoryShape& shape) const {
  if (!context_.paged_memory()) return counted_bytes(shape.gate_up_bytes) + counted_bytes(shape.down_bytes);
  const uint64_t granularity = context_.mapping_granularity();
  return mapped_bytes(shape.gate_up_bytes, granularity) + mapped_bytes(shape.down_bytes, granularity);
}

uint64_t CudaBackend::expert_scratch_bytes(WeightFormat format, int64_t rows, int64_t hidden_size,
                                           int64_t intermediate_size) const {
  if (is_grouped(format) && grouped_codes(format).order_bytes > 0) {
    // The inputs in the order of the columns: of gate and of up, or of down.
    const int64_t floats = rows * std::max(2 * hidden_size, intermediate_size);
    return counted_bytes(static_cast<uint64_t>(floats) * sizeof(float));
  }
  if (!fast_) return 0;
  MultiplyJob gate_up;
  gate_up.format = format;
  gate_up.rows = 2 * intermediate_size;
  gate_up.columns = hidden_size;
  gate_up.n = static_cast<int>(rows);
  MultiplyJob down = gate_up;
  down.rows = hidden_size;
  down.columns = intermediate_size;
  uint64_t bytes = 0;
  if (tensor_cores_take(gate_up, context_.traits())) bytes = tensor_core_scratch_bytes(gate_up);
  if (tensor_cores_take(down, context_.traits())) bytes = std::max(bytes, tensor_core_scratch_bytes(down));
  return counted_bytes(bytes);
}

}  // namespace odmoe::cuda
