#include "multiply_format.h"

namespace odmoe::cuda {

cudaError_t multiply_addend5_blocks(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream) {
  return multiply_rows<BlockRows<AddendForm<5>>, 4, 1, 8, 1>(launch, multiprocessors, stream);
}

}  // namespace odmoe::cuda
