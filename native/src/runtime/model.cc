#include "odmoe/model.h"

#include <utility>

#include "odmoe/error.h"
#include "rope.h"

namespace odmoe {
namespace {

const std::atomic<bool> kNeverCancelled = false;

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

// Where a role's rows stand in its matrix, and how large both are.
struct RolePlace {
  int64_t first_row;
  int64_t rows;
  int64_t columns;
  int64_t matrix_rows;
};

RolePlace place_of(DenseRole role, const ModelShape& shape) {
  const int64_t hidden = shape.hidden_size;
  switch (role) {
    case DenseRole::embedding:
    case DenseRole::lm_head:
      return {0, shape.vocab_size, hidden, shape.vocab_size};
    case DenseRole::query:
      return {0, shape.query_size(), hidden, shape.qkv_size()};
    case DenseRole::key:
      return {shape.query_size(), shape.kv_size(), hidden, shape.qkv_size()};
    case DenseRole::value:
      return {shape.query_size() + shape.kv_size(), shape.kv_size(), hidden, shape.qkv_size()};
    case DenseRole::attention_output:
      return {0, hidden, shape.query_size(), hidden};
    case DenseRole::gate:
      return {0, shape.experts, hidden, shape.experts};
    case DenseRole::final_norm:
    case DenseRole::attention_norm:
    case DenseRole::expert_norm:
      return {0, 1, hidden, 1};
  }
  throw Error("INTERNAL", "unknown role");
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
    throw Error("MODEL_UNSUPPORTED", "a context of " + std::to_string(shape.max_positions) +
                                         " positions; the rotary embedding is exact up to " +
                                         std::to_string(kMaxRopePosition));
  }
  for (LayerWeights& layer : layers_) layer.experts = std::vector<ResidentExpert>(static_cast<size_t>(shape.experts));
}

void Model::check_layer(int layer) const {
  if (layer >= 0 && layer < shape_.layers) return;
  throw Error("INTERNAL", "layer " + std::to_string(layer) + " of a model of " + std::to_string(shape_.layers));
}

std::atomic<uint32_t>& Model::loaded_roles(DenseRole role, int layer) const {
  return has_layer(role) ? loaded_[static_cast<size_t>(layer)] : loaded_.back();
}

void Model::require(DenseRole role, int layer) const {
  if ((loaded_roles(role, layer).load(std::memory_order_acquire) & bit(role)) != 0) return;
  throw Error("INTERNAL", describe(role, layer) + " has not been loaded");
}

StoredMatrix& Model::matrix_of(DenseRole role, int layer) {
  if (role == DenseRole::embedding) return embedding_;
  if (role == DenseRole::lm_head) return lm_head_;
  LayerWeights& weights = layers_[static_cast<size_t>(layer)];
  if (role == DenseRole::attention_output) return weights.attention_output;
  return role == DenseRole::gate ? weights.gate : weights.qkv;
}

DeviceMemory& Model::vector_of(DenseRole role, int layer) {
  if (role == DenseRole::final_norm) return final_norm_;
  LayerWeights& weights = layers_[static_cast<size_t>(layer)];
  return role == DenseRole::attention_norm ? weights.attention_norm : weights.expert_norm;
}

void Model::load_dense(DenseRole role, int layer, const TensorSource& source, WeightFormat format) {
  if (has_layer(role)) check_layer(layer);
  const RolePlace place = place_of(role, shape_);
  check_source(source, place.rows, place.columns, describe(role, layer));
  std::atomic<uint32_t>& loaded = loaded_roles(role, layer);
  if ((loaded.load(std::memory_order_relaxed) & bit(role)) != 0) {
    throw Error("INTERNAL", describe(role, layer) + " has been loaded already");
  }
  if (is_norm(role)) {
    load_vector(role, layer, source);
  } else {
    load_matrix(role, layer, source, format);
  }
  loaded.fetch_or(bit(role), std::memory_order_release);
}

void Model::load_matrix(DenseRole role, int layer, const TensorSource& source, WeightFormat format) {
  if (role == DenseRole::embedding && (format == WeightFormat::int8 || format == WeightFormat::nf4)) {
    throw Error("INTERNAL", "the embedding is looked up by rows and cannot be quantized");
  }
  const RolePlace place = place_of(role, shape_);
  StoredMatrix& stored = matrix_of(role, layer);
  if (stored.memory.empty()) stored = StoredMatrix(device_->backend(), format, place.matrix_rows, place.columns);
  if (stored.matrix.format != format) {
    throw Error("INTERNAL", "query, key and value of a layer stand in one matrix and must have one format");
  }
  const DeviceMemory staging(device_->backend(), staging_size(place.rows, place.columns), DeviceMemory::Kind::staging);
  uint64_t read_bytes = 0;
  load_rows(backend(), stored.matrix, place.first_row, source, staging, kNeverCancelled, read_bytes);
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
    throw Error("INTERNAL", "expert " + std::to_string(expert) + " of a model of " + std::to_string(shape_.experts));
  }
  const std::string what = "expert " + std::to_string(expert) + " of layer " + std::to_string(layer);
  const ExpertShape shape{shape_.hidden_size, shape_.intermediate_size, format};
  check_expert_source(source, shape, what);
  ResidentExpert& resident = layers_[static_cast<size_t>(layer)].experts[static_cast<size_t>(expert)];
  if (resident.loaded.load(std::memory_order_relaxed)) throw Error("INTERNAL", what + " has been loaded already");
  const DeviceMemory staging(device_->backend(), staging_size(shape_.intermediate_size, shape_.hidden_size),
                             DeviceMemory::Kind::staging);
  ExpertMatrices matrices(device_->backend(), shape);
  uint64_t read_bytes = 0;
  load_expert(backend(), matrices, source, staging, kNeverCancelled, read_bytes);
  resident.matrices = std::move(matrices);
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
                               DenseRole::attention_output, DenseRole::expert_norm, DenseRole::gate}) {
    require(role, layer);
  }
  return layers_[static_cast<size_t>(layer)];
}

const ExpertMatrices& Model::resident_expert(int layer, int expert) const {
  const ResidentExpert& resident = layers_[static_cast<size_t>(layer)].experts[static_cast<size_t>(expert)];
  if (!resident.loaded.load(std::memory_order_acquire)) {
    throw Error("INTERNAL", "expert " + std::to_string(expert) + " of layer " + std::to_string(layer) +
                                " is not resident; load it, or run the layer with attend and combine");
  }
  return resident.matrices;
}

}  // namespace odmoe
