#include "multiply_format.h"

namespace odmoe::cuda {

cudaError_t multiply_fixed4(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream) {
  return multiply_rows<Fixed4Rows, 2, 2, 4, 1>(launch, multiprocessors, stream);
}

}  // namespace odmoe::cuda
