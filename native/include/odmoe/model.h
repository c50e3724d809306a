// A model's weights on a device.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "odmoe/device.h"
#include "odmoe/expert.h"
#include "odmoe/store.h"

namespace odmoe {

// Mixtral-family decoder. All sizes in elements.
struct ModelShape {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int experts = 0;
  int experts_per_token = 0;
  bool normalize_top_k = true;
  double rms_norm_epsilon = 0;
  double rope_theta = 0;
  int sliding_window = 0;  // 0: none
  int max_positions = 0;

  int64_t query_size() const { return static_cast<int64_t>(heads) * head_dim; }
  int64_t kv_size() const { return static_cast<int64_t>(kv_heads) * head_dim; }
  int64_t qkv_size() const { return query_size() + 2 * kv_size(); }
};

enum class DenseRole : uint8_t {
  embedding,
  final_norm,
  lm_head,
  attention_norm,
  query,
  key,
  value,
  attention_output,
  expert_norm,
  router,  // "gate", as packs and checkpoints name it
};

const char* dense_role_name(DenseRole role);

struct ResidentExpert {
  ExpertMatrices matrices;
  std::atomic<bool> loaded = false;
};

// What of query, key and value is known of a layer, until all three are.
struct Projections {
  std::array<std::optional<TensorSource>, 3> sources;
  std::array<WeightFormat, 3> formats = {};
};

struct LayerWeights {
  Projections projections;
  StoredMatrix qkv;  // query, key and value rows in one matrix
  StoredMatrix attention_output;
  StoredMatrix router;
  DeviceMemory attention_norm;
  DeviceMemory expert_norm;
  std::vector<ResidentExpert> experts;
};

// What a model's matrices take on the device.
struct ResidentWeights {
  struct Kind {
    WeightFormat format;
    int64_t matrices = 0;
    uint64_t bytes = 0;
  };
  std::vector<Kind> kinds;  // in the order of their first matrix
  int64_t fell_back = 0;    // matrices that were to be fixed4 and are kept in their exact format
};

// Loading happens on the storage thread, use on the executor; a weight is seen by the executor once it is whole.
class Model : public LiveCount<Model> {
 public:
  Model(std::shared_ptr<Device> device, const ModelShape& shape);

  // What cannot be kept as fixed4 is kept in its exact format. Query, key and value stand in one matrix and are read when the last
  // of them is loaded; where their exact formats differ it is FP32.
  // Throws INTERNAL (no such layer, loaded already, a format the role cannot have), MODEL_CORRUPT (sizes), what reading throws,
  // DEVICE_OUT_OF_MEMORY.
  void load_dense(DenseRole role, int layer, const TensorSource& source, WeightFormat format);
  void load_resident_expert(int layer, int expert, const ExpertSource& source, WeightFormat format);

  // From any thread.
  ResidentWeights resident_weights() const;

  const std::shared_ptr<Device>& device() const { return device_; }
  Backend& backend() const { return *device_->backend(); }
  const ModelShape& shape() const { return shape_; }
  // RoPE frequencies: head_dim / 2.
  const std::vector<float>& inverse_frequencies() const { return inverse_frequencies_; }

  // These throw INTERNAL when what they give has not been loaded.
  const Matrix& embedding() const;
  const float* final_norm() const;
  // The embedding, where no LM head was loaded.
  const Matrix& lm_head() const;
  const LayerWeights& layer(int layer) const;
  const ExpertMatrices& resident_expert(int layer, int expert) const;

 private:
  StoredMatrix& matrix_of(DenseRole role, int layer);
  DeviceMemory& vector_of(DenseRole role, int layer);
  void load_projection(DenseRole role, int layer, const TensorSource& source, WeightFormat format);
  void load_dense_matrix(DenseRole role, int layer, const TensorSource& source, WeightFormat format);
  void count(const StoredMatrix& stored, WeightFormat wanted);
  void load_vector(DenseRole role, int layer, const TensorSource& source);
  std::atomic<uint32_t>& loaded_roles(DenseRole role, int layer) const;
  void check_layer(int layer) const;
  void require(DenseRole role, int layer) const;

  std::shared_ptr<Device> device_;
  ModelShape shape_;
  std::vector<float> inverse_frequencies_;
  StoredMatrix embedding_;
  StoredMatrix lm_head_;
  DeviceMemory final_norm_;
  std::vector<LayerWeights> layers_;
  // Bit r: role r is loaded. One word a layer, and the last for what has no layer.
  mutable std::vector<std::atomic<uint32_t>> loaded_;
  mutable std::mutex counting_;
  ResidentWeights resident_;
};

}  // namespace odmoe
