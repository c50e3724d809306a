#include "multiply_format.h"

namespace odmoe::cuda {

cudaError_t multiply_mxfp4(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream) {
  return multiply_rows<Mxfp4Rows, 4, 0, 8, 1>(launch, multiprocessors, stream);
}

}  // namespace odmoe::cuda
