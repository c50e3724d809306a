#include "odmoe/model.h"

#include <algorithm>
#include <utility>

#include "odmoe/error.h"
#include "rope.h"

namespace odmoe {
namespace {

bool has_layer(DenseRole role) {
  return role != DenseRole::embedding && role != DenseRole::lm_head && role != DenseRole::final_norm;
}

bool is_norm(DenseRole role) {
  return role == DenseRole::final_norm || role == DenseRole::attention_norm || role == DenseRole::expert_norm;
}

uint32_t bit(DenseRole role) { return 1u << static_cast<unsigned>(role); }

std::string describe(DenseRole role, int layer) {
  const std::string name = dense_role_name(role);
  return has_layer(role) ? name + " of layer " + std::to_string(layer) : name;
}

bool is_quantized(WeightFormat format) { return format == WeightFormat::int8 || format == WeightFormat::nf4; }

// Query, key and value, whose rows stand in this order.
bool is_projection(DenseRole role) { return role == DenseRole::query || role == DenseRole::key || role == DenseRole::value; }
size_t projection_index(DenseRole role) { return static_cast<size_t>(role) - static_cast<size_t>(DenseRole::query); }

struct RoleSize {
  int64_t rows;
  int64_t columns;
};

RoleSize size_of(DenseRole role, const ModelShape& shape) {
  const int64_t hidden = shape.hidden_size;
  switch (role) {
    case DenseRole::embedding:
    case DenseRole::lm_head: return {shape.vocab_size, hidden};
    case DenseRole::query: return {shape.query_size(), hidden};
    case DenseRole::key:
    case DenseRole::value: return {shape.kv_size(), hidden};
    case DenseRole::attention_output: return {hidden, shape.query_size()};
    case DenseRole::router: return {shape.experts, hidden};
    case DenseRole::final_norm:
    case DenseRole::attention_norm:
    case DenseRole::expert_norm: return {1, hidden};
  }
  throw Error(ErrorCode::internal, "unknown role");
}

}  // namespace

const char* dense_role_name(DenseRole role) {
  static constexpr const char* kNames[] = {"embedding", "finalNorm", "lmHead",          "attentionNorm", "query",
                                           "key",       "value",     "attentionOutput", "expertNorm",    "gate"};
  return kNames[static_cast<size_t>(role)];
}

Model::Model(std::shared_ptr<Device> device, const ModelShape& shape)
    : device_(std::move(device)),
      shape_(shape),
      inverse_frequencies_(rope_inverse_frequencies(shape.rope_theta, shape.head_dim)),
      layers_(static_cast<size_t>(shape.layers)),
      loaded_(static_cast<size_t>(shape.layers) + 1) {
  if (shape.max_positions > kMaxRopePosition) {
    throw Error(ErrorCode::model_unsupported, "a context of " + std::to_string(shape.max_positions) +
                                                  " positions; the rotary embedding is exact up to " +
                                                  std::to_string(kMaxRopePosition));
  }
  for (LayerWeights& layer : layers_) layer.experts = std::vector<ResidentExpert>(static_cast<size_t>(shape.experts));
}

void Model::check_layer(int layer) const {
  if (layer >= 0 && layer < shape_.layers) return;
  throw Error(ErrorCode::internal, "layer " + std::to_string(layer) + " of a model of " + std::to_string(shape_.layers));
}

std::atomic<uint32_t>& Model::loaded_roles(DenseRole role, int layer) const {
  return has_layer(role) ? loaded_[static_cast<size_t>(layer)] : loaded_.back();
}

void Model::require(DenseRole role, int layer) const {
  if ((loaded_roles(role, layer).load(std::memory_order_acquire) & bit(role)) != 0) return;
  throw Error(ErrorCode::internal, describe(role, layer) + " has not been loaded");
}

StoredMatrix& Model::matrix_of(DenseRole role, int layer) {
  if (role == DenseRole::embedding) return embedding_;
  if (role == DenseRole::lm_head) return lm_head_;
  LayerWeights& weights = layers_[static_cast<size_t>(layer)];
  if (role == DenseRole::attention_output) return weights.attention_output;
  return weights.router;
}

DeviceMemory& Model::vector_of(DenseRole role, int layer) {
  if (role == DenseRole::final_norm) return final_norm_;
  LayerWeights& weights = layers_[static_cast<size_t>(layer)];
  return role == DenseRole::attention_norm ? weights.attention_norm : weights.expert_norm;
}

void Model::load_dense(DenseRole role, int layer, const TensorSource& source, WeightFormat format) {
  if (has_layer(role)) check_layer(layer);
  const RoleSize size = size_of(role, shape_);
  check_source(source, size.rows, size.columns, describe(role, layer));
  std::atomic<uint32_t>& loaded = loaded_roles(role, layer);
  if ((loaded.load(std::memory_order_relaxed) & bit(role)) != 0) {
    throw Error(ErrorCode::internal, describe(role, layer) + " has been loaded already");
  }
  if (is_norm(role)) {
    load_vector(role, layer, source);
  } else if (is_projection(role)) {
    load_projection(role, layer, source, format);
  } else {
    load_dense_matrix(role, layer, source, format);
  }
  loaded.fetch_or(bit(role), std::memory_order_release);
}

void Model::load_projection(DenseRole role, int layer, const TensorSource& source, WeightFormat format) {
  LayerWeights& weights = layers_[static_cast<size_t>(layer)];
  Projections& known = weights.projections;
  known.sources[projection_index(role)] = source;
  known.formats[projection_index(role)] = format;
  std::array<const TensorSource*, 3> sources;
  for (size_t i = 0; i < sources.size(); i++) {
    if (!known.sources[i]) return;
    sources[i] = &*known.sources[i];
  }
  if (known.formats[1] != known.formats[0] || known.formats[2] != known.formats[0]) {
    if (std::any_of(known.formats.begin(), known.formats.end(), is_quantized)) {
      throw Error(ErrorCode::internal,
                  "query, key and value of a layer stand in one matrix and are quantized together or not at all");
    }
    format = exact_format(sources);
  }
  weights.qkv = load_matrix(device_->backend(), format, sources);
  count(weights.qkv, format);
  known = {};
}

void Model::load_dense_matrix(DenseRole role, int layer, const TensorSource& source, WeightFormat format) {
  if (role == DenseRole::embedding && is_quantized(format)) {
    throw Error(ErrorCode::internal, "the embedding is looked up by rows and cannot be quantized");
  }
  const TensorSource* const sources[] = {&source};
  StoredMatrix& stored = matrix_of(role, layer);
  stored = load_matrix(device_->backend(), format, sources);
  count(stored, format);
}

void Model::count(const StoredMatrix& stored, WeightFormat wanted) {
  const std::lock_guard lock(counting_);
  const WeightFormat format = stored.matrix.format;
  auto kind = std::find_if(resident_.kinds.begin(), resident_.kinds.end(),
                           [&](const ResidentWeights::Kind& one) { return one.format == format; });
  if (kind == resident_.kinds.end()) kind = resident_.kinds.insert(kind, ResidentWeights::Kind{format});
  kind->matrices++;
  kind->bytes += stored.memory.buffer().bytes;
  if (format != wanted) resident_.fell_back++;
}

ResidentWeights Model::resident_weights() const {
  const std::lock_guard lock(counting_);
  return resident_;
}

void Model::load_vector(DenseRole role, int layer, const TensorSource& source) {
  std::vector<uint8_t> staging(staging_bytes(source.split, 1, source.columns));
  const uint8_t* planes[kMaxPlanes] = {};
  TensorReader reader(source);
  reader.read_rows(1, staging.data(), planes);
  std::vector<float> values(static_cast<size_t>(source.columns));
  planes_to_floats(values.data(), planes, source.split, source.columns);
  DeviceMemory& memory = vector_of(role, layer);
  memory = DeviceMemory(device_->backend(), float_bytes(source.columns));
  backend().copy_to_device(memory.floats(), values.data(), float_bytes(source.columns));
}

void Model::load_resident_expert(int layer, int expert, const ExpertSource& source, WeightFormat format) {
  check_layer(layer);
  if (expert < 0 || expert >= shape_.experts) {
    throw Error(ErrorCode::internal, "expert " + std::to_string(expert) + " of a model of " + std::to_string(shape_.experts));
  }
  const std::string what = "expert " + std::to_string(expert) + " of layer " + std::to_string(layer);
  const ExpertShape shape{shape_.hidden_size, shape_.intermediate_size, format};
  check_expert_source(source, shape, what);
  ResidentExpert& resident = layers_[static_cast<size_t>(layer)].experts[static_cast<size_t>(expert)];
  if (resident.loaded.load(std::memory_order_relaxed)) throw Error(ErrorCode::internal, what + " has been loaded already");
  resident.matrices = load_expert(device_->backend(), format, source);
  count(resident.matrices.gate_up, format);
  count(resident.matrices.down, format);
  resident.loaded.store(true, std::memory_order_release);
}

const Matrix& Model::embedding() const {
  require(DenseRole::embedding, 0);
  return embedding_.matrix;
}

const float* Model::final_norm() const {
  require(DenseRole::final_norm, 0);
  return final_norm_.floats();
}

const Matrix& Model::lm_head() const {
  const uint32_t loaded = loaded_.back().load(std::memory_order_acquire);
  return (loaded & bit(DenseRole::lm_head)) != 0 ? lm_head_.matrix : embedding();
}

const LayerWeights& Model::layer(int layer) const {
  check_layer(layer);
  for (const DenseRole role : {DenseRole::attention_norm, DenseRole::query, DenseRole::key, DenseRole::value,
                               DenseRole::attention_output, DenseRole::expert_norm, DenseRole::router}) {
    require(role, layer);
  }
  return layers_[static_cast<size_t>(layer)];
}

const ExpertMatrices& Model::resident_expert(int layer, int expert) const {
  const ResidentExpert& resident = layers_[static_cast<size_t>(layer)].experts[static_cast<size_t>(expert)];
  if (!resident.loaded.load(std::memory_order_acquire)) {
    throw Error(ErrorCode::internal, "expert " + std::to_string(expert) + " of layer " + std::to_string(layer) +
                                         " is not resident; load it, or run the layer with attend and combine");
  }
  return resident.matrices;
}

}  // namespace odmoe
