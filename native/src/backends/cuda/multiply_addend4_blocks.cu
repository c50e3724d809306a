#include "multiply_format.h"

namespace odmoe::cuda {

cudaError_t multiply_addend4_blocks(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream) {
  return multiply_rows<BlockRows<AddendForm<4>>, 4, 1, 8, 1>(launch, multiprocessors, stream);
}

}  // namespace odmoe::cuda
