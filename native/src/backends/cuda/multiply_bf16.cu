#include "multiply_format.h"

namespace odmoe::cuda {

cudaError_t multiply_bf16(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream) {
  return multiply_rows<Bf16Rows, 4, 4, 8, 2>(launch, multiprocessors, stream);
}

}  // namespace odmoe::cuda
