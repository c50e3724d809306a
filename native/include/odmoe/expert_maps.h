// Small trained maps from the residual stream, as an expert layer meets it, to the experts of this layer and of later ones. They run on
// the processor, whichever device computes the pass, and give the same bits everywhere. For one row x of a layer (arithmetic.h):
//  - y = norm of x with the divisor hidden_size and kMapEpsilon, without weight;
//  - h = silu of the INT8 product of `units` with y: a hidden layer that all distances share;
//  - probability of an expert = sigmoid(INT8 product of its row of `heads` with h, plus its bias).
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "odmoe/live_count.h"

namespace odmoe {

inline constexpr float kMapEpsilon = 1e-12f;

struct ExpertMapsShape {
  int64_t hidden_size = 0;
  int experts = 0;
  int units = 0;
  int layers = 0;              // expert layers
  std::vector<int> distances;  // in rising order

  // The distances that lead from this layer to a layer: the first ones.
  int distances_at(int layer) const;
};

// One layer's weights: INT8 rows with one scale each.
struct LayerMaps {
  std::vector<int8_t> units;  // units x hidden_size
  std::vector<float> unit_scales;
  std::vector<int8_t> heads;  // distances of this layer x experts x units
  std::vector<float> head_scales;
  std::vector<float> biases;
};

class ExpertMaps : public LiveCount<ExpertMaps> {
 public:
  // Throws INTERNAL for weights that do not fit the shape or are not finite, and DEVICE_UNAVAILABLE for an instruction set that
  // cannot be used.
  ExpertMaps(ExpertMapsShape shape, std::span<const LayerMaps> layers, const std::string& instruction_set = "auto");
  ~ExpertMaps();

  // states: rows x hidden_size. Returns rows x distances of this layer x experts probabilities; zeros for a row that holds NaN or
  // infinity. May be called on several threads at a time. Throws INTERNAL.
  std::vector<float> predict(int layer, std::span<const float> states, int rows) const;

 private:
  struct Packed;
  ExpertMapsShape shape_;
  std::unique_ptr<const Packed> packed_;
};

// Examples for the maps of one layer. The spans must stay valid during the training.
struct MapTraining {
  int64_t hidden_size = 0;
  int experts = 0;
  int experts_per_token = 0;
  int units = 0;
  std::span<const float> states;  // tokens x hidden_size
  // For each distance of the layer: tokens x experts_per_token experts. -1: unknown; the token then does not count for this distance.
  std::vector<std::span<const int32_t>> choices;
  int epochs = 0;
  uint64_t seed = 0;
  int threads = 0;  // 0: as many as the process may use
  std::string instruction_set = "auto";
};

// Called after each epoch, counted from 1, with the mean squared error of its probabilities.
using EpochListener = std::function<void(int epoch, double error)>;

// Trains in FP32: binary cross-entropy over the experts of all distances, Adam. Tokens whose state is not finite do not count. The result
// has the same bits with every instruction set and number of threads. Throws CANCELLED, and INTERNAL for examples that do not belong
// together or of which none counts.
LayerMaps train_expert_maps(const MapTraining& training, const EpochListener& on_epoch, const std::atomic<bool>& cancelled);

}  // namespace odmoe
