#include "multiply_format.h"

namespace odmoe::cuda {

cudaError_t multiply_fp32(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream) {
  return multiply_rows<Fp32Rows, 4, 4, 8, 1>(launch, multiprocessors, stream);
}

}  // namespace odmoe::cuda
