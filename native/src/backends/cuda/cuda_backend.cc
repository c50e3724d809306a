#include "cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "cuda_error.h"
#include "odmoe/error.h"
#include "weight_layout.h"

namespace odmoe::cuda {
namespace {

bool is_quantized(WeightFormat format) { return format == WeightFormat::int8 || format == WeightFormat::nf4; }

MultiplyJob job_of(const Product& product) {
  const Matrix& weights = *product.weights;
  return {weights.format, static_cast<const uint8_t*>(weights.storage.data),
          weights.rows,   weights.columns,
          product.in,     product.in_stride,
          product.out,    product.out_stride,
          product.n};
}

}  // namespace

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
  if (is_quantized(embedding.format)) throw Error(ErrorCode::internal, "an embedding must not be quantized");
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

void CudaBackend::rms_norm(float* out, const float* in, const float* weight, int n, int size, float epsilon) {
  if (n <= 0) return;
  context_.enter();
  check(launch_rms_norm(out, in, weight, n, size, epsilon, stream_), "an RMS norm");
}

void CudaBackend::multiply(const Product* products, int count) { multiply_all(products, count, false); }

void CudaBackend::multiply_swiglu(const Product* products, int count, float*) { multiply_all(products, count, true); }

void CudaBackend::multiply_all(const Product* products, int count, bool gated) {
  context_.enter();
  std::vector<MultiplyJob> jobs;
  for (int i = 0; i < count; ++i) {
    if (products[i].n <= 0) continue;
    const MultiplyJob job = job_of(products[i]);
    if (fast_ && tensor_cores_take(job, context_.traits())) {
      check(launch_tensor_core_multiply(job, gated, scratch(tensor_core_scratch_bytes(job, gated)), stream_), "a product");
    } else {
      jobs.push_back(job);
    }
  }
  for (size_t done = 0; done < jobs.size(); done += kMostMultiplyJobs) {
    const auto some = static_cast<int>(std::min<size_t>(kMostMultiplyJobs, jobs.size() - done));
    check(launch_multiply(jobs.data() + done, some, gated, context_.traits(), stream_), "a product");
  }
}

void CudaBackend::rope(float* heads, int64_t stride, const float* cos, const float* sin, int n, int head_count, int head_dim) {
  if (n <= 0) return;
  context_.enter();
  check(launch_rope(heads, stride, cos, sin, n, head_count, head_dim, stream_), "the rotary embedding");
}

CudaBackend::SentRows CudaBackend::send_rows(const AttentionRow* host_rows, int n) {
  struct Lists {
    const AttentionRow* furthest;
    float* const* keys = nullptr;
    float* const* values = nullptr;
  };
  std::unordered_map<float* const*, Lists> caches;
  for (int i = 0; i < n; ++i) {
    Lists& lists = caches.try_emplace(host_rows[i].cache.key_blocks, Lists{&host_rows[i]}).first->second;
    if (host_rows[i].position > lists.furthest->position) lists.furthest = &host_rows[i];
  }
  const auto blocks_of = [](const AttentionRow& row) { return int64_t{row.position} / kAttentionChunk + 1; };
  uint64_t bytes = ArgumentRing::padded<DeviceAttentionRow>(n);
  for (const auto& [keys, lists] : caches) bytes += 2 * ArgumentRing::padded<float*>(blocks_of(*lists.furthest));
  arguments_.begin(bytes);
  for (auto& [keys, lists] : caches) {
    lists.keys = arguments_.add(lists.furthest->cache.key_blocks, blocks_of(*lists.furthest));
    lists.values = arguments_.add(lists.furthest->cache.value_blocks, blocks_of(*lists.furthest));
  }
  std::vector<DeviceAttentionRow> rows(static_cast<size_t>(n));
  SentRows sent;
  for (int i = 0; i < n; ++i) {
    const Lists& lists = caches.at(host_rows[i].cache.key_blocks);
    rows[static_cast<size_t>(i)] = {lists.keys, lists.values, host_rows[i].position};
    sent.last_position = std::max(sent.last_position, host_rows[i].position);
  }
  sent.rows = arguments_.add(rows.data(), n);
  arguments_.send();
  return sent;
}

void CudaBackend::store(const SentRows& sent, const float* keys, const float* values, int64_t stride, int n,
                        const AttentionShape& shape) {
  check(launch_store_key_values(sent.rows, keys, values, stride, n, shape, stream_), "storing keys and values");
}

void CudaBackend::attend(float* out, const SentRows& sent, const float* queries, int64_t stride, int n,
                         const AttentionShape& shape) {
  void* const room = scratch(attention_scratch_bytes(n, sent.last_position, shape));
  check(launch_attention(out, sent.rows, queries, stride, n, sent.last_position, shape, room, stream_), "attention");
}

void CudaBackend::store_key_values(const AttentionRow* host_rows, const float* keys, const float* values, int64_t stride, int n,
                                   const AttentionShape& shape) {
  if (n <= 0) return;
  context_.enter();
  store(send_rows(host_rows, n), keys, values, stride, n, shape);
}

void CudaBackend::attention(float* out, const AttentionRow* host_rows, const float* queries, int64_t stride, int n,
                            const AttentionShape& shape) {
  if (n <= 0) return;
  context_.enter();
  attend(out, send_rows(host_rows, n), queries, stride, n, shape);
}

void CudaBackend::store_and_attend(float* out, const AttentionRow* host_rows, const float* queries, const float* keys,
                                   const float* values, int64_t stride, int n, const AttentionShape& shape) {
  if (n <= 0) return;
  context_.enter();
  const SentRows sent = send_rows(host_rows, n);
  store(sent, keys, values, stride, n, shape);
  attend(out, sent, queries, stride, n, shape);
}

void CudaBackend::router(int32_t* host_experts, float* host_weights, const float* logits, int n, int experts, int k, bool normalize,
                         const HostCopy& along) {
  if (experts > kMostExperts || k < 1 || k > experts) {
    throw Error(ErrorCode::model_unsupported, "a router cannot choose " + std::to_string(k) + " of " + std::to_string(experts) +
                                                  " experts; at most " + std::to_string(kMostExperts) + " are supported");
  }
  if (n <= 0) return copy_to_host(along.host, along.device, along.bytes);
  context_.enter();
  const uint64_t places = static_cast<uint64_t>(n) * static_cast<uint64_t>(k);
  const uint64_t bytes = places * (sizeof(int32_t) + sizeof(float));
  auto* const chosen = static_cast<int32_t*>(reserve(router_results_, bytes));
  auto* const weights = reinterpret_cast<float*>(chosen + places);
  check(launch_router(chosen, weights, logits, n, experts, k, normalize, stream_), "the router");
  const uint64_t bounced = along.bytes <= kBounceBytes ? along.bytes : 0;
  uint8_t* const bounce = gate_bounce_.reserve(bytes + bounced);
  check(cudaMemcpyAsync(bounce, router_results_.data, bytes, cudaMemcpyDeviceToHost, stream_), "copying the router's choice");
  if (along.bytes > 0) {
    void* const to = bounced > 0 ? bounce + bytes : along.host;
    check(cudaMemcpyAsync(to, along.device, along.bytes, cudaMemcpyDeviceToHost, stream_),
          "copying along with the router's choice");
  }
  check(cudaStreamSynchronize(stream_), "waiting for the device");
  std::memcpy(host_experts, bounce, places * sizeof(int32_t));
  std::memcpy(host_weights, bounce + places * sizeof(int32_t), places * sizeof(float));
  if (bounced > 0) std::memcpy(along.host, bounce + bytes, bounced);
}

void CudaBackend::swiglu(float* out, const float* gate_up, int n, int size) {
  if (n <= 0) return;
  context_.enter();
  check(launch_swiglu(out, gate_up, n, size, stream_), "SwiGLU");
}

void CudaBackend::copy_rows(float* out, const int32_t* host_out_rows, const float* in, const int32_t* host_in_rows, int n,
                            int size) {
  if (n <= 0) return;
  context_.enter();
  const int32_t* out_rows = nullptr;
  const int32_t* in_rows = nullptr;
  if (host_out_rows != nullptr || host_in_rows != nullptr) {
    arguments_.begin(2 * ArgumentRing::padded<int32_t>(n));
    out_rows = arguments_.add(host_out_rows, n);
    in_rows = arguments_.add(host_in_rows, n);
    arguments_.send();
  }
  check(launch_copy_rows(out, out_rows, in, in_rows, n, size, stream_), "copying rows");
}

void CudaBackend::add(float* x, const float* y, int64_t count) {
  if (count <= 0) return;
  context_.enter();
  check(launch_add(x, y, count, stream_), "an addition");
}

void CudaBackend::combine(float* hidden, const float* outputs, const float* host_weights, int n, int k, int size) {
  if (n <= 0) return;
  context_.enter();
  const int64_t places = int64_t{n} * k;
  arguments_.begin(ArgumentRing::padded<float>(places));
  const float* const weights = arguments_.add(host_weights, places);
  arguments_.send();
  check(launch_combine(hidden, outputs, weights, n, k, size, stream_), "combining the experts' outputs");
}

void* CudaBackend::reserve(DeviceBuffer& buffer, uint64_t bytes) {
  if (buffer.bytes >= bytes) return buffer.data;
  const uint64_t doubled = std::max(bytes, 2 * buffer.bytes);
  check(cudaStreamSynchronize(stream_), "waiting for the device");
  arena_.release(buffer);
  try {
    buffer = arena_.allocate(doubled);
  } catch (const Error&) {
    // A budget that is nearly used up may still hold what is needed now.
    buffer = arena_.allocate(bytes);
  }
  return buffer.data;
}

}  // namespace odmoe::cuda
