#include "multiply_format.h"

namespace odmoe::cuda {

cudaError_t multiply_sliced63(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream) {
  return multiply_slices<3, 1, 1>(launch, multiprocessors, stream);
}

}  // namespace odmoe::cuda
