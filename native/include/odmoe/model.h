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

// Memory of a model's matrices on the device.
struct ResidentWeights {
  struct Kind {
    WeightFormat format;
    int64_t matrices = 0;
    uint64_t bytes = 0;
  };
  std::vector<Kind> kinds;  // in the order in which each format first occurs
  int64_t fell_back = 0;    // matrices requested as fixed4 but stored in their exact format
};

// The storage thread loads weights, and the executor uses them; the executor sees a weight once it is complete.
class Model : public LiveCount<Model> {
 public:
  // Throws MODEL_UNSUPPORTED for a context whose rotations are not exact.
  Model(std::shared_ptr<Device> device, const ModelShape& shape);

  // `layer` counts all layers. A matrix that fixed4 cannot hold is stored in its exact format.
  // Throws INTERNAL (no such layer or role, loaded already, a format that the role cannot have), MODEL_CORRUPT (sizes), the errors
  // of reading, and DEVICE_OUT_OF_MEMORY.
  void load_dense(DenseRole role, int layer, const TensorSource& source, WeightFormat format);
  // `layer` counts expert layers, here and in the functions about experts below.
  // `reading`: how a sliced expert is read. Throws like load_dense.
  void load_resident_expert(int layer, int expert, const ExpertSource& source, WeightFormat format,
                            SliceReading reading = SliceReading::both);

  // May be called from any thread.
  ResidentWeights resident_weights() const;

  const std::shared_ptr<Device>& device() const { return device_; }
  // Memory that the model's sequences hold.
  const std::shared_ptr<SequenceMemory>& sequence_memory() const { return sequence_memory_; }
  Backend& backend() const { return *device_->backend(); }
  const ModelShape& shape() const { return shape_; }
  // The index among all layers of an expert layer.
  int layer_of_expert_layer(int expert_layer) const { return expert_layers_[static_cast<size_t>(expert_layer)]; }

  // These throw INTERNAL when the requested weights have not been loaded.
  const Matrix& embedding() const;
  // The final norm and the model's other tensors, without embedding and LM head.
  const DenseWeights& ending() const;
  // The weights that make the rows of a draft head.
  const DenseWeights& draft_beginning() const;
  // The LM head; the embedding where no LM head was loaded.
  const Matrix& lm_head() const;
  const DenseWeights& layer(int layer) const;
  const ExpertMatrices& resident_expert(int layer, int expert) const;

 private:
  DenseWeights& weights_of(DenseRole role, int layer);
  void load_matrices(DenseWeight& weight, DenseRole role, int layer, const TensorSource& source, WeightFormat format);
  void load_vector(DenseWeight& weight, DenseRole role, const TensorSource& source, const std::string& what);
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
