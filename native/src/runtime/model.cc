#include "odmoe/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "dense_dimensions.h"
#include "odmoe/error.h"
#include "rope.h"

namespace odmoe {
namespace {

std::string describe(DenseRole role, int layer) {
  const std::string name = dense_role_facts(role).name;
  return dense_role_facts(role).of_model ? name : name + " of layer " + std::to_string(layer);
}

// The matrices of these roles are stored as one matrix per head or group, because each multiplies another part of a row.
int64_t matrix_count(DenseRole role, int layer, const ModelShape& shape) {
  if (role == DenseRole::output_low) return std::get<PooledMixer>(shape.layers[static_cast<size_t>(layer)].mixer).output_groups;
  if (role != DenseRole::key_expansion && role != DenseRole::value_expansion) return 1;
  return std::get<LatentMixer>(shape.layers[static_cast<size_t>(layer)].mixer).heads;
}

// The values are integers, in the place of floats. Each row must name experts that there are, and none twice.
void check_token_experts(const std::vector<float>& values, const ModelShape& shape, const std::string& what) {
  const auto k = static_cast<size_t>(shape.experts_per_token);
  std::vector<int64_t> last_token(static_cast<size_t>(shape.experts), -1);
  for (size_t i = 0; i < values.size(); i++) {
    int32_t expert = 0;
    std::memcpy(&expert, &values[i], sizeof(expert));
    const auto token = static_cast<int64_t>(i / k);
    if (expert >= 0 && expert < shape.experts && std::exchange(last_token[static_cast<size_t>(expert)], token) != token) continue;
    throw Error(ErrorCode::model_corrupt, what + " gives token " + std::to_string(token) + " the expert " + std::to_string(expert) +
                                              " of " + std::to_string(shape.experts) +
                                              ", or gives it twice; download the checkpoint again");
  }
}

}  // namespace

Model::Model(std::shared_ptr<Device> device, const ModelShape& shape)
    : device_(std::move(device)),
      sequence_memory_(std::make_shared<SequenceMemory>(device_->backend())),
      shape_(shape),
      own_(model_roles(shape)) {
  check_rotations(shape_);
  for (size_t layer = 0; layer < shape_.layers.size(); layer++) {
    layers_.emplace_back(layer_roles(shape_.layers[layer], shape_));
    if (!shape_.layers[layer].routed) continue;
    expert_layers_.push_back(static_cast<int>(layer));
    experts_.emplace_back(static_cast<size_t>(shape_.experts));
  }
}

void Model::throw_missing(DenseRole role, int layer) {
  throw Error(ErrorCode::internal, describe(role, layer) + " has not been loaded");
}

DenseWeights& Model::weights_of(DenseRole role, int layer) {
  if (dense_role_facts(role).of_model) return own_;
  if (layer >= 0 && static_cast<size_t>(layer) < layers_.size()) return layers_[static_cast<size_t>(layer)];
  throw Error(ErrorCode::internal, "layer " + std::to_string(layer) + " of a model of " + std::to_string(layers_.size()));
}

void Model::load_dense(DenseRole role, int layer, const TensorSource& source, WeightFormat format) {
  DenseWeight* const weight = weights_of(role, layer).find(role);
  if (weight == nullptr) throw Error(ErrorCode::internal, "the model has no " + describe(role, layer));
  const DenseDimensions size = dense_dimensions(role, layer, shape_);
  check_source(source, size.rows, size.columns, describe(role, layer));
  if (weight->loaded.load(std::memory_order_relaxed)) {
    throw Error(ErrorCode::internal, describe(role, layer) + " has been loaded already");
  }
  if (dense_role_facts(role).is_vector) {
    load_vector(*weight, role, source, describe(role, layer));
  } else {
    load_matrices(*weight, role, layer, source, format);
  }
  weight->loaded.store(true, std::memory_order_release);
}

void Model::load_matrices(DenseWeight& weight, DenseRole role, int layer, const TensorSource& source, WeightFormat format) {
  if (role == DenseRole::embedding && !is_embedding_format(format)) {
    throw Error(ErrorCode::internal, "the embedding is looked up by rows, which this format of codes does not allow");
  }
  weight.matrices = load_blocks(device_->backend(), format, source, matrix_count(role, layer, shape_));
  for (const StoredMatrix& matrix : weight.matrices) count(matrix, format);
}

void Model::count(const StoredMatrix& stored, WeightFormat wanted) {
  const std::lock_guard lock(counting_);
  const WeightFormat format = stored.matrix.format;
  auto kind = std::find_if(resident_.kinds.begin(), resident_.kinds.end(),
                           [&](const ResidentWeights::Kind& one) { return one.format == format; });
  if (kind == resident_.kinds.end()) kind = resident_.kinds.insert(kind, ResidentWeights::Kind{format});
  kind->matrices++;
  kind->bytes += stored.bytes();
  if (format != wanted && wanted != WeightFormat::shipped) resident_.fell_back++;
}

ResidentWeights Model::resident_weights() const {
  const std::lock_guard lock(counting_);
  return resident_;
}

void Model::load_vector(DenseWeight& weight, DenseRole role, const TensorSource& source, const std::string& what) {
  std::vector<uint8_t> staging(staging_bytes(source.split, 1, source.columns));
  const uint8_t* planes[kMaxPlanes] = {};
  TensorReader reader(source);
  const int64_t count = source.rows * source.columns;
  std::vector<float> values(static_cast<size_t>(count));
  // Read row by row, because scales belong to rows.
  for (int64_t row = 0; row < source.rows; row++) {
    reader.read_rows(1, staging.data(), planes);
    planes_to_floats(values.data() + row * source.columns, planes, source.split, source.columns);
  }
  // One such value would spoil every answer. Matrices are not checked: that would take as long as loading them.
  if (!std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); })) {
    throw Error(ErrorCode::model_corrupt, what + " holds a value that is no finite number; download the checkpoint again");
  }
  if (role == DenseRole::token_experts) check_token_experts(values, shape_, what);
  weight.vector = DeviceMemory(device_->backend(), float_bytes(count));
  backend().copy_to_device(weight.vector.floats(), values.data(), float_bytes(count));
  weight.first = values[0];
}

void Model::load_resident_expert(int layer, int expert, const ExpertSource& source, WeightFormat format, SliceReading reading) {
  if (layer < 0 || layer >= shape_.expert_layers || expert < 0 || expert >= shape_.experts) {
    throw Error(ErrorCode::internal, "expert " + std::to_string(expert) + " of expert layer " + std::to_string(layer) +
                                         " of a model of " + std::to_string(shape_.expert_layers) + " with " +
                                         std::to_string(shape_.experts) + " each");
  }
  const std::string what = "expert " + std::to_string(expert) + " of expert layer " + std::to_string(layer);
  const ExpertShape shape{shape_.expert_row_size(), shape_.expert, format};
  check_expert_source(source, shape, what);
  check_slices(source, format, reading);
  ResidentExpert& resident = experts_[static_cast<size_t>(layer)][static_cast<size_t>(expert)];
  if (resident.loaded.load(std::memory_order_relaxed)) throw Error(ErrorCode::internal, what + " has been loaded already");
  resident.matrices = load_expert(device_->backend(), shape, source, reading);
  count(resident.matrices.gate_up, format);
  if (resident.matrices.has_up()) count(resident.matrices.up, format);
  count(resident.matrices.down, format);
  resident.loaded.store(true, std::memory_order_release);
}

const Matrix& Model::embedding() const {
  if (!own_.is_loaded(DenseRole::embedding)) throw_missing(DenseRole::embedding, 0);
  return own_.matrix(DenseRole::embedding);
}

const Matrix& Model::lm_head() const { return own_.is_loaded(DenseRole::lm_head) ? own_.matrix(DenseRole::lm_head) : embedding(); }

const DenseWeights& Model::ending() const {
  for (const DenseRole role : {DenseRole::final_norm, DenseRole::final_norm_bias, DenseRole::lm_head_bias}) {
    if (own_.find(role) != nullptr && !own_.is_loaded(role)) throw_missing(role, 0);
  }
  return own_;
}

const DenseWeights& Model::draft_beginning() const {
  for (const DenseRole role : {DenseRole::token_norm, DenseRole::state_norm, DenseRole::draft_input}) {
    if (!own_.is_loaded(role)) throw_missing(role, 0);
  }
  return own_;
}

const DenseWeights& Model::layer(int layer) const {
  const DenseWeights& weights = layers_[static_cast<size_t>(layer)];
  if (const std::optional<DenseRole> role = weights.missing()) throw_missing(*role, layer);
  return weights;
}

const ExpertMatrices& Model::resident_expert(int layer, int expert) const {
  const ResidentExpert& resident = experts_[static_cast<size_t>(layer)][static_cast<size_t>(expert)];
  if (!resident.loaded.load(std::memory_order_acquire)) {
    throw Error(ErrorCode::internal, "expert " + std::to_string(expert) + " of expert layer " + std::to_string(layer) +
                                         " is not resident; load it, or run the layer with attend and combine");
  }
  return resident.matrices;
}

}  // namespace odmoe
