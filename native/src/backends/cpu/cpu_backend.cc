#include "cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "odmoe/error.h"
#include "weight_layout.h"

namespace odmoe {
namespace cpu {
namespace {

void copy(void* to, const void* from, uint64_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace

CpuBackend::CpuBackend(const CpuOptions& options)
    : kernels_(choose_kernels(options.instruction_set)),
      arena_(options.budget_bytes),
      pool_(options.threads > 0 ? options.threads : usable_threads()),
      scratch_(kThreadScratch * sizeof(float) / sizeof(CacheLine) * static_cast<size_t>(pool_.threads())) {}

CpuBackend::~CpuBackend() {
  arena_.release(attention_scratch_);
  arena_.release(expansion_scratch_);
  arena_.release(ordered_inputs_);
}

DeviceInfo CpuBackend::info() const {
  DeviceInfo info;
  info.backend = "cpu";
  info.instruction_set = kernels_.instruction_set;
  info.threads = pool_.threads();
  info.budget_bytes = arena_.budget_bytes();
  info.used_bytes = arena_.used_bytes();
  info.high_water_bytes = arena_.high_water_bytes();
  return info;
}

void CpuBackend::copy_to_device(void* device, const void* host, uint64_t bytes) { copy(device, host, bytes); }
void CpuBackend::copy_to_host(void* host, const void* device, uint64_t bytes) { copy(host, device, bytes); }

uint64_t CpuBackend::matrix_bytes(WeightFormat format, int64_t rows, int64_t columns) const {
  return storage_bytes(format, rows, columns);
}

uint64_t CpuBackend::lower_slice_bytes(WeightFormat format, int64_t rows, int64_t columns) const {
  return lower_storage_bytes(format, rows, columns);
}

bool CpuBackend::write_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const uint8_t* const* planes) {
  if (first_row < 0 || rows < 0 || first_row + rows > matrix.rows ||
      matrix.storage.bytes < storage_bytes(matrix.format, matrix.rows, matrix.columns)) {
    throw Error(ErrorCode::internal, "rows " + std::to_string(first_row) + " to " + std::to_string(first_row + rows) +
                                         " do not fit a matrix of " + std::to_string(matrix.rows) + " rows in " +
                                         std::to_string(matrix.storage.bytes) + " bytes");
  }
  if (slice_bits(split) != 0 && slice_bits(split) == slice_bits(matrix.format) && planes[1] != nullptr &&
      matrix.lower.bytes < lower_storage_bytes(matrix.format, matrix.rows, matrix.columns)) {
    throw Error(ErrorCode::internal, "a matrix has no memory for the lower slice that is to be written");
  }
  // Each thread keeps its scratch, because loads take no memory after the first.
  thread_local std::vector<uint8_t> scratch;
  scratch.resize(std::max(scratch.size(), write_scratch_bytes(matrix.format, matrix.columns)));
  return kernels_.write_rows(matrix, first_row, rows, split, planes, scratch.data());
}

void CpuBackend::embed(float* out, const Matrix& embedding, const int32_t* host_ids, int n) {
  if (!is_embedding_format(embedding.format))
    throw Error(ErrorCode::internal, "an embedding is not looked up in codes as models are shipped with them");
  for (int i = 0; i < n; ++i) {
    if (host_ids[i] < 0 || host_ids[i] >= embedding.rows) {
      throw Error(ErrorCode::request_invalid,
                  "token id " + std::to_string(host_ids[i]) + " is outside the vocabulary of " + std::to_string(embedding.rows));
    }
    kernels_.read_row(out + i * embedding.columns, embedding, host_ids[i]);
  }
}

void CpuBackend::reserve(DeviceBuffer& buffer, uint64_t bytes) {
  if (buffer.bytes >= bytes) return;
  const uint64_t doubled = std::max(bytes, 2 * buffer.bytes);
  arena_.release(buffer);
  try {
    buffer = arena_.allocate(doubled);
  } catch (const Error&) {
    // A budget that is nearly used up may still have room for the bytes that are needed now.
    buffer = arena_.allocate(bytes);
  }
}

}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) { return std::make_unique<cpu::CpuBackend>(options); }

}  // namespace odmoe
