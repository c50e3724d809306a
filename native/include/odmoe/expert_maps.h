// Small trained maps from the residual stream, as an expert layer meets it, to the experts of this layer and of later ones. They run on
// the processor, whichever device computes the pass, and give the same bits everywhere. For one row x of a layer (arithmetic.h):
//  - y = norm of x with the divisor hidden_size and kMapEpsilon, without weight;
//  - h = silu of the INT8 product of `units` with y: a hidden layer that all distances share;
//  - probability of an expert = sigmoid(INT8 product of its row of `heads` with h, plus its bias).
#pragma once
#include <cstdint>
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

}  // namespace odmoe
