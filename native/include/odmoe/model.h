// A model's weights on a device.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "odmoe/dense_weights.h"
#include "odmoe/device.h"
#include "odmoe/expert.h"
#include "odmoe/model_shape.h"
#include "odmoe/sequence_memory.h"
#include "odmoe/store.h"

namespace odmoe {

struct ResidentExpert {
  ExpertMatrices matrices;
  std::atomic<bool> loaded = false;
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
  // Throws MODEL_UNSUPPORTED for a context whose rotations are not exact.
  Model(std::shared_ptr<Device> device, const ModelShape& shape);

  // `layer` counts all layers. What cannot be kept as fixed4 is kept in its exact format.
  // Throws INTERNAL (no such layer or role, loaded already, a format the role cannot have), MODEL_CORRUPT (sizes), what reading throws,
  // DEVICE_OUT_OF_MEMORY.
  void load_dense(DenseRole role, int layer, const TensorSource& source, WeightFormat format);
  // `layer` counts expert layers, here and below where experts are asked for.
  void load_resident_expert(int layer, int expert, const ExpertSource& source, WeightFormat format);

  // From any thread.
  ResidentWeights resident_weights() const;

  const std::shared_ptr<Device>& device() const { return device_; }
  // What its sequences hold.
  const std::shared_ptr<SequenceMemory>& sequence_memory() const { return sequence_memory_; }
  Backend& backend() const { return *device_->backend(); }
  const ModelShape& shape() const { return shape_; }
  // The layer, of all layers, that is an expert layer.
  int layer_of_expert_layer(int expert_layer) const { return expert_layers_[static_cast<size_t>(expert_layer)]; }

  // These throw INTERNAL when what they give has not been loaded.
  const Matrix& embedding() const;
  // Final norm and what else the model has but embedding and LM head.
  const DenseWeights& ending() const;
  // The embedding, where no LM head was loaded.
  const Matrix& lm_head() const;
  const DenseWeights& layer(int layer) const;
  const ExpertMatrices& resident_expert(int layer, int expert) const;

 private:
  DenseWeights& weights_of(DenseRole role, int layer);
  void load_matrices(DenseWeight& weight, DenseRole role, int layer, const TensorSource& source, WeightFormat format);
  void load_vector(DenseWeight& weight, const TensorSource& source, const std::string& what);
  void count(const StoredMatrix& stored, WeightFormat wanted);
  [[noreturn]] static void throw_missing(DenseRole role, int layer);

  std::shared_ptr<Device> device_;
  std::shared_ptr<SequenceMemory> sequence_memory_;
  ModelShape shape_;
  DenseWeights own_;
  std::vector<DenseWeights> layers_;
  std::vector<int> expert_layers_;
  std::vector<std::vector<ResidentExpert>> experts_;  // by expert layer
  mutable std::mutex counting_;
  ResidentWeights resident_;
};

}  // namespace odmoe
