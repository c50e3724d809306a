// All kinds of GLU: SwiGLU, GPT-OSS's, Gemma's, and others that mix their properties.
#pragma once
#include "odmoe/operators.h"

namespace odmoe::cuda_test {

inline constexpr GluShape kGluShapes[] = {
    {0, Activation::sigmoid, 1.0f, 0.0f, 0.0f, false},       {0, Activation::sigmoid, 1.702f, 7.0f, 1.0f, true},
    {0, Activation::tanh, 1.0f, 0.0f, 0.0f, false},          {0, Activation::sigmoid, 1.0f, 0.0f, 0.0f, true},
    {0, Activation::sigmoid, 1.702f, 0.0f, 1.0f, false},     {0, Activation::tanh, 1.0f, 0.5f, 0.0f, true},
    {0, Activation::sigmoid, 1.0f, 0.5f, 0.0f, false, true},
};

}  // namespace odmoe::cuda_test
