// Converts a model's description (shared/model/model-shape.ts) to the runtime's. native/device.ts has checked it; a value that does
// not fit still throws.
#pragma once
#include <napi.h>

#include "odmoe/model_shape.h"

namespace odmoe {

ModelShape to_model_shape(const Napi::Object& object);
GluShape to_glu_shape(const Napi::Object& object);

}  // namespace odmoe
