// The dense tensors of a model and their sizes, as in shared/model/dense-roles.ts.
#pragma once
#include <cstdint>
#include <vector>

#include "odmoe/dense_roles.h"
#include "odmoe/model_shape.h"

namespace odmoe {

struct DenseDimensions {
  int64_t rows = 1;
  int64_t columns = 1;
};

// Roles of the whole model, with an LM head even where it shares the embedding; roles of one of its layers.
std::vector<DenseRole> model_roles(const ModelShape& shape);
std::vector<DenseRole> layer_roles(const LayerShape& layer, const ModelShape& shape);

// Dimensions of a role that the model or the layer has; `layer` is ignored for roles of the model. A vector has one row, except for
// the taps of a convolution.
DenseDimensions dense_dimensions(DenseRole role, int layer, const ModelShape& shape);

}  // namespace odmoe
