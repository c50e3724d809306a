// The backend's operators as launches on its compute stream.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "block_layout.h"
#include "cuda_backend.h"
#include "cuda_error.h"
#include "odmoe/error.h"

namespace odmoe::cuda {
namespace {

MultiplyJob job_of(const Product& product) {
  const Matrix& weights = *product.weights;
  return {weights.format,
          static_cast<const uint8_t*>(weights.storage.data),
          weights.rows,
          weights.columns,
          product.in,
          product.in_stride,
          product.out,
          product.out_stride,
          product.n,
          nullptr,
          static_cast<const uint8_t*>(weights.lower.data),
          weights.reading};
}

bool is_empty(const Vectors& vectors) { return vectors.rows <= 0 || vectors.vectors <= 0 || vectors.size <= 0; }

}  // namespace

template <class T>
const T* CudaBackend::send(const T* host, int64_t count) {
  arguments_.begin(ArgumentRing::padded<T>(count));
  const T* const device = arguments_.add(host, count);
  arguments_.send();
  return device;
}

void CudaBackend::normalize(const NormWork& work) {
  if (is_empty(work.in)) return;
  context_.enter();
  check(launch_normalize(work, stream_), "a norm");
}

void CudaBackend::layer_norm(float* out, const float* in, const float* weight, const float* bias, int n, int size, float epsilon) {
  if (n <= 0) return;
  context_.enter();
  check(launch_layer_norm(out, in, weight, bias, n, size, epsilon, stream_), "a layer norm");
}

void CudaBackend::multiply(const Product* products, int count) { multiply_all(products, count, nullptr, nullptr); }

void CudaBackend::multiply_glu(const Product* products, int count, float*, const GluShape& shape, const float* const* biases) {
  if (!shape.has_gate()) return Backend::multiply_glu(products, count, nullptr, shape, nullptr);
  multiply_all(products, count, &shape, biases);
}

void CudaBackend::order_columns(MultiplyJob* jobs, int count) {
  OrderJob orders[kMostMultiplyJobs];
  int ordered = 0;
  int64_t floats = 0;
  const auto is_ordered = [](const MultiplyJob& job) {
    return is_grouped(job.format) && grouped_codes(job.format).order_bytes > 0;
  };
  for (int i = 0; i < count; ++i) floats += is_ordered(jobs[i]) ? jobs[i].n * jobs[i].columns : 0;
  if (floats == 0) return;
  float* room = static_cast<float*>(scratch(static_cast<uint64_t>(floats) * sizeof(float)));
  for (int i = 0; i < count; ++i) {
    MultiplyJob& job = jobs[i];
    if (!is_ordered(job)) continue;
    const BlockPlaces places = block_places(block_form(job.format), job.rows, steps_of(job.columns));
    const auto* const order = reinterpret_cast<const uint16_t*>(job.weights + places.order);
    orders[ordered++] = {room, job.in, order, job.in_stride, static_cast<int>(job.columns), job.n};
    job.in = room;
    job.in_stride = job.columns;
    room += job.n * job.columns;
  }
  check(launch_order_columns(orders, ordered, stream_), "ordering the inputs of a product");
}

void CudaBackend::multiply_all(const Product* products, int count, const GluShape* glu, const float* const* biases) {
  context_.enter();
  jobs_.clear();
  for (int i = 0; i < count; ++i) {
    if (products[i].n <= 0) continue;
    MultiplyJob job = job_of(products[i]);
    if (slice_bits(job.format) != 0 && job.reading == SliceReading::both && job.lower == nullptr) {
      throw Error(ErrorCode::internal, "a product reads a lower slice that is not loaded");
    }
    if (biases != nullptr) job.biases = biases[i];
    if (fast_ && tensor_cores_take(job, context_.traits())) {
      check(launch_tensor_core_multiply(job, glu, scratch(tensor_core_scratch_bytes(job)), stream_), "a product");
    } else {
      jobs_.push_back(job);
    }
  }
  for (size_t done = 0; done < jobs_.size(); done += kMostMultiplyJobs) {
    const auto some = static_cast<int>(std::min<size_t>(kMostMultiplyJobs, jobs_.size() - done));
    order_columns(jobs_.data() + done, some);
    check(launch_multiply(jobs_.data() + done, some, glu, context_.traits(), stream_), "a product");
  }
}

void CudaBackend::rotate(const RotaryWork& work) {
  if (is_empty(work.heads)) return;
  context_.enter();
  check(launch_rotate(work, stream_), "the rotary embedding");
}

CudaBackend::SentRows CudaBackend::send_rows(const AttentionRow* host_rows, int n, const AttentionShape& shape) {
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
    if (!shape.values_in_keys) lists.values = arguments_.add(lists.furthest->cache.value_blocks, blocks_of(*lists.furthest));
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
  store(send_rows(host_rows, n, shape), keys, values, stride, n, shape);
}

void CudaBackend::attention(float* out, const AttentionRow* host_rows, const float* queries, int64_t stride, int n,
                            const AttentionShape& shape) {
  if (n <= 0) return;
  context_.enter();
  attend(out, send_rows(host_rows, n, shape), queries, stride, n, shape);
}

void CudaBackend::store_and_attend(float* out, const AttentionRow* host_rows, const float* queries, const float* keys,
                                   const float* values, int64_t stride, int n, const AttentionShape& shape) {
  if (n <= 0) return;
  context_.enter();
  const SentRows sent = send_rows(host_rows, n, shape);
  store(sent, keys, values, stride, n, shape);
  attend(out, sent, queries, stride, n, shape);
}

void CudaBackend::choose_experts(const RouterWork& work, uint8_t* bounce) {
  const uint64_t places = static_cast<uint64_t>(work.n) * static_cast<uint64_t>(work.k);
  const uint64_t bytes = places * (sizeof(int32_t) + sizeof(float));
  const uint64_t score_bytes = work.host_scores != nullptr ? logit_bytes(work) : 0;
  RouterJob job;
  job.experts = static_cast<int32_t*>(reserve(router_results_, bytes + score_bytes));
  job.weights = reinterpret_cast<float*>(job.experts + places);
  if (score_bytes > 0) job.scores = job.weights + places;
  job.logits = work.logits;
  job.n = work.n;
  job.expert_count = work.experts;
  job.k = work.k;
  job.shape = work.shape;
  job.choice_bias = work.choice_bias;
  job.expert_scale = work.expert_scale;
  job.given = work.given;
  check(launch_router(job, stream_), "the router");
  check(cudaMemcpyAsync(bounce, router_results_.data, bytes, cudaMemcpyDeviceToHost, stream_), "copying the router's choice");
  if (score_bytes > 0) {
    check(cudaMemcpyAsync(work.host_scores, job.scores, score_bytes, cudaMemcpyDeviceToHost, stream_), "copying a router's scores");
  }
  if (work.host_logits != nullptr) {
    check(cudaMemcpyAsync(work.host_logits, work.logits, logit_bytes(work), cudaMemcpyDeviceToHost, stream_),
          "copying a router's logits");
  }
}

void CudaBackend::router(const RouterWork& work) {
  check_router(work, kMostExperts);
  const HostCopy& along = work.along;
  if (work.n <= 0) return copy_to_host(along.host, along.device, along.bytes);
  context_.enter();
  const uint64_t places = static_cast<uint64_t>(work.n) * static_cast<uint64_t>(work.k);
  const uint64_t bytes = places * (sizeof(int32_t) + sizeof(float));
  const uint64_t bounced = along.bytes <= kBounceBytes ? along.bytes : 0;
  uint8_t* const bounce = gate_bounce_.reserve(bytes + bounced);
  choose_experts(work, bounce);
  if (along.bytes > 0) {
    void* const to = bounced > 0 ? bounce + bytes : along.host;
    check(cudaMemcpyAsync(to, along.device, along.bytes, cudaMemcpyDeviceToHost, stream_),
          "copying along with the router's choice");
  }
  check(cudaStreamSynchronize(stream_), "waiting for the device");
  std::memcpy(work.host_experts, bounce, places * sizeof(int32_t));
  std::memcpy(work.host_weights, bounce + places * sizeof(int32_t), places * sizeof(float));
  if (bounced > 0) std::memcpy(along.host, bounce + bytes, bounced);
}

void CudaBackend::glu(float* out, const float* gate_up, const float* biases, int n, int size, const GluShape& shape) {
  if (n <= 0 || size <= 0) return;
  context_.enter();
  check(launch_glu(out, gate_up, biases, n, size, shape, stream_), "a GLU");
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

void CudaBackend::copy_vectors(const Vectors& out, const Vectors& in) {
  if (is_empty(out)) return;
  context_.enter();
  check(launch_copy_vectors(out, in, stream_), "copying vectors");
}

void CudaBackend::add(float* x, const float* y, int64_t count, float scale) {
  if (count <= 0) return;
  context_.enter();
  check(launch_add(x, y, count, scale, stream_), "an addition");
}

void CudaBackend::scale(float* x, int64_t count, float factor) {
  if (count <= 0) return;
  context_.enter();
  check(launch_scale(x, count, factor, stream_), "a scaling");
}

void CudaBackend::add_bias(const Vectors& x, const float* bias) {
  if (is_empty(x)) return;
  context_.enter();
  check(launch_add_bias(x, bias, stream_), "adding a bias");
}

void CudaBackend::clip(const Vectors& x, float limit) {
  if (is_empty(x)) return;
  context_.enter();
  check(launch_clip(x, limit, stream_), "a clamp");
}

void CudaBackend::gate(const Vectors& x, const Vectors& gates, Gate gate) {
  if (is_empty(x)) return;
  context_.enter();
  check(launch_gate(x, gates, gate, stream_), "a gate");
}

void CudaBackend::multiply_elements(const Vectors& out, const Vectors& a, const Vectors& b) {
  if (is_empty(out)) return;
  context_.enter();
  check(launch_multiply_elements(out, a, b, stream_), "a product of elements");
}

void CudaBackend::cap_logits(float* x, int64_t count, float divisor, float cap) {
  if (count <= 0) return;
  context_.enter();
  check(launch_cap(x, count, divisor, cap, stream_), "capping logits");
}

void CudaBackend::convolve(const ConvolutionWork* works, int count) {
  ConvolutionExtent extent;
  extent.works = count;
  for (const ConvolutionWork* work = works; work != works + count; ++work) {
    extent.rows = std::max(extent.rows, work->rows);
    extent.taps = std::max(extent.taps, work->taps);
    extent.channels = std::max(extent.channels, work->channels);
  }
  if (extent.rows <= 0 || extent.channels <= 0) return;
  context_.enter();
  check(launch_convolve(send(works, count), extent, stream_), "a convolution");
}

void CudaBackend::delta_rule(const DeltaWork* works, int count) {
  DeltaExtent extent;
  extent.works = count;
  int rows = 0;
  for (const DeltaWork* work = works; work != works + count; ++work) {
    rows = std::max(rows, work->rows);
    extent.value_heads = std::max(extent.value_heads, work->value_heads);
    extent.value_dim = std::max(extent.value_dim, work->value_dim);
    extent.key_dim = work == works || work->key_dim == extent.key_dim ? work->key_dim : 0;
    extent.decay_by_channel = work->decay_by_channel;
  }
  if (rows <= 0) return;
  context_.enter();
  check(launch_delta_rule(send(works, count), extent, stream_), "the delta rule");
}

void CudaBackend::channel_decay(const DecayWork& work) {
  if (is_empty(work.decays)) return;
  context_.enter();
  check(launch_channel_decay(work, stream_), "the decay of a delta net's channels");
}

void CudaBackend::state_space(const StateSpaceWork* works, int count) {
  StateSpaceExtent extent;
  extent.works = count;
  int rows = 0;
  for (const StateSpaceWork* work = works; work != works + count; ++work) {
    rows = std::max(rows, work->rows);
    extent.heads = std::max(extent.heads, work->heads);
    extent.head_dim = std::max(extent.head_dim, work->head_dim);
    extent.state_size = work == works || work->state_size == extent.state_size ? work->state_size : 0;
  }
  if (rows <= 0) return;
  context_.enter();
  check(launch_state_space(send(works, count), extent, stream_), "a state space");
}

void CudaBackend::combine(const CombineWork& work) {
  if (work.n <= 0 || work.size <= 0) return;
  context_.enter();
  CombineJob job;
  job.hidden = work.hidden;
  job.outputs = work.outputs;
  if (work.k > 0) job.weights = send(work.host_weights, int64_t{work.n} * work.k);
  job.always = work.always;
  job.always_gates = work.always_gates;
  job.n = work.n;
  job.k = work.k;
  job.size = work.size;
  job.scale = work.scale;
  job.add = work.add;
  check(launch_combine(job, stream_), "combining the experts' outputs");
}

void CudaBackend::stream_weights(const StreamWeightsWork& work) {
  if (work.rows <= 0) return;
  context_.enter();
  check(launch_stream_weights(work, stream_), "the weights of residual streams");
}

void CudaBackend::sum_streams(const StreamSumWork& work) {
  if (work.rows <= 0 || work.size <= 0) return;
  context_.enter();
  check(launch_sum_streams(work, stream_), "adding up residual streams");
}

void CudaBackend::mix_streams(const StreamMixWork& work) {
  if (work.rows <= 0 || work.size <= 0) return;
  context_.enter();
  check(launch_mix_streams(work, stream_), "mixing residual streams");
}

}  // namespace odmoe::cuda
