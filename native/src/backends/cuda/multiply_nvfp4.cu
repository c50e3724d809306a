#include "multiply_format.h"

namespace odmoe::cuda {

cudaError_t multiply_nvfp4(MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream) {
  return multiply_rows<BlockRows<Nvfp4Form>, 4, 1, 8, 1>(launch, multiprocessors, stream);
}

}  // namespace odmoe::cuda
