#include "multiply_format.h"

namespace odmoe::cuda {

cudaError_t multiply_fp8(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream) {
  return multiply_rows<Fp8Rows, 4, 2, 8, 1>(launch, multiprocessors, stream);
}

}  // namespace odmoe::cuda
