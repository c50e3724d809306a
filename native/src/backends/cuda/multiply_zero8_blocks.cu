#include "multiply_format.h"

namespace odmoe::cuda {

cudaError_t multiply_zero8_blocks(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream) {
  return multiply_rows<BlockRows<ZeroForm<8>>, 4, 1, 8, 1>(launch, multiprocessors, stream);
}

}  // namespace odmoe::cuda
