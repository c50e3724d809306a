#include "plane_kernels_portable.h"

namespace odmoe {
namespace {

void merge_bf16_scalar(const uint8_t* exponents, const uint8_t* sign_mantissas, uint8_t* out, uint64_t count, bool) {
  merge_bf16_portable(exponents, sign_mantissas, out, count);
}

}  // namespace

const PlaneKernels kScalarPlaneKernels = {"scalar", expand_codes_portable, decode_streams_portable, merge_bf16_scalar,
                                          join_e4m3_portable};

}  // namespace odmoe
