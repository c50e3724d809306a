#include "cuda_backend.h"

#include <algorithm>

#include "cuda_error.h"
#include "odmoe/error.h"
#include "weight_layout.h"

namespace odmoe::cuda {

CudaBackend::CudaBackend(const CudaOptions& options)
    : fast_(options.fast),
      context_(options.device),
      arena_(options.budget_bytes, context_.context_bytes()),
      stream_(context_.compute_stream()),
      copies_(context_),
      arguments_(arena_, stream_),
      staging_(arena_, context_.traits().integrated),
      writer_(context_, arena_, staging_, experts_) {}

CudaBackend::~CudaBackend() {
  cudaSetDevice(context_.device());
  cudaStreamSynchronize(stream_);
  arena_.release(scratch_);
  arena_.release(router_results_);
}

DeviceInfo CudaBackend::info() const {
  context_.enter();
  DeviceInfo info;
  info.backend = "cuda";
  info.instruction_set = "sm_" + std::to_string(context_.traits().capability);
  info.threads = context_.traits().multiprocessors;
  info.budget_bytes = arena_.budget_bytes();
  info.used_bytes = arena_.used_bytes();
  info.high_water_bytes = arena_.high_water_bytes();
  info.name = context_.name();
  info.context_bytes = arena_.context_bytes();
  info.driver_used_bytes = driver_used_bytes_.get(RecentFigure::Clock::now(), [this] { return context_.driver_used_bytes(); });
  info.paged_experts = context_.paged_memory();
  return info;
}

DeviceBuffer CudaBackend::allocate(uint64_t bytes) {
  context_.enter();
  return arena_.allocate(bytes);
}

void CudaBackend::release(DeviceBuffer& buffer) noexcept {
  if (buffer.data == nullptr) return;
  cudaSetDevice(context_.device());
  cudaStreamSynchronize(stream_);
  arena_.release(buffer);
}

void CudaBackend::copy_to_device(void* device, const void* host, uint64_t bytes) {
  context_.enter();
  copies_.to_device(device, host, bytes);
}

void CudaBackend::copy_to_host(void* host, const void* device, uint64_t bytes) {
  context_.enter();
  copies_.to_host(host, device, bytes);
}

void CudaBackend::copy_on_device(void* to, const void* from, uint64_t bytes) {
  context_.enter();
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "copying on the device");
}

void CudaBackend::scatter_to_device(std::span<const SpacedRows> pieces, const void* host) {
  context_.enter();
  copies_.scatter(pieces, host);
}

void CudaBackend::gather_to_host(void* host, std::span<const SpacedRows> pieces) {
  context_.enter();
  copies_.gather(host, pieces);
}

uint64_t CudaBackend::matrix_bytes(WeightFormat format, int64_t rows, int64_t columns) const {
  return matrix_storage_bytes(format, rows, columns);
}

uint64_t CudaBackend::lower_slice_bytes(WeightFormat format, int64_t rows, int64_t columns) const {
  return lower_slice_storage_bytes(format, rows, columns);
}

bool CudaBackend::write_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const uint8_t* const* planes) {
  context_.enter();
  return writer_.write_rows(matrix, first_row, rows, split, planes);
}

bool CudaBackend::decodes(CodecKind codec) const { return codec == CodecKind::fixed4 || codec == CodecKind::huffman; }

void CudaBackend::write_coded_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const PlaneSource* planes) {
  context_.enter();
  writer_.write_coded_rows(matrix, first_row, rows, split, planes);
}

void CudaBackend::embed(float* out, const Matrix& embedding, const int32_t* host_ids, int n) {
  if (!is_embedding_format(embedding.format))
    throw Error(ErrorCode::internal, "an embedding is not looked up in codes as models are shipped with them");
  for (int i = 0; i < n; ++i) {
    if (host_ids[i] >= 0 && host_ids[i] < embedding.rows) continue;
    throw Error(ErrorCode::request_invalid,
                "token id " + std::to_string(host_ids[i]) + " is outside the vocabulary of " + std::to_string(embedding.rows));
  }
  if (n <= 0) return;
  context_.enter();
  arguments_.begin(ArgumentRing::padded<int32_t>(n));
  const int32_t* const ids = arguments_.add(host_ids, n);
  arguments_.send();
  check(launch_embed(out, embedding.format, static_cast<const uint8_t*>(embedding.storage.data), embedding.rows, embedding.columns,
                     ids, n, stream_),
        "embedding tokens");
}

void* CudaBackend::reserve(DeviceBuffer& buffer, uint64_t bytes) {
  if (buffer.bytes >= bytes) return buffer.data;
  const uint64_t doubled = std::max(bytes, 2 * buffer.bytes);
  check(cudaStreamSynchronize(stream_), "waiting for the device");
  arena_.release(buffer);
  try {
    buffer = arena_.allocate(doubled);
  } catch (const Error&) {
    // A budget that is nearly used up may still have room for the bytes that are needed now.
    buffer = arena_.allocate(bytes);
  }
  return buffer.data;
}

}  // namespace odmoe::cuda
