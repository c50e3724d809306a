#include "multiply_format.h"

namespace odmoe::cuda {

cudaError_t multiply_e4m3_blocks(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream) {
  return multiply_rows<BlockRows<E4m3Form>, 4, 1, 8, 1>(launch, multiprocessors, stream);
}

}  // namespace odmoe::cuda
