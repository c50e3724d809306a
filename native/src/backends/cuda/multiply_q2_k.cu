#include "multiply_format.h"

namespace odmoe::cuda {

cudaError_t multiply_q2_k(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream) {
  return multiply_rows<BlockRows<Q2kForm>, 4, 1, 8, 1>(launch, multiprocessors, stream);
}

}  // namespace odmoe::cuda
