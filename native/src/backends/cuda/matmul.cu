// Products: jobs for the same kernel form one launch.
#include "multiply_format.h"

namespace odmoe::cuda {
namespace {

MultiplyPart part_of(const MultiplyJob& job) {
  return {job.weights,
          job.lower,
          job.in,
          job.out,
          job.biases,
          static_cast<int>(job.in_stride),
          static_cast<int>(job.out_stride),
          static_cast<int>(job.rows),
          static_cast<int>(job.columns),
          job.n,
          0};
}

cudaError_t launch_blocks_of(WeightFormat format, MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream) {
  launch.blocks = block_form(format);
  switch (kind_of(format)) {
    case WeightFormat::fp8_row:
    case WeightFormat::fp8_tile:
    case WeightFormat::mxfp8: return multiply_e4m3_blocks(launch, multiprocessors, stream);
    case WeightFormat::nvfp4_multiplied:
    case WeightFormat::nvfp4_divided: return multiply_nvfp4(launch, multiprocessors, stream);
    case WeightFormat::q4_0:
    case WeightFormat::grouped4: return multiply_zero4_blocks(launch, multiprocessors, stream);
    case WeightFormat::q8_0:
    case WeightFormat::grouped8: return multiply_zero8_blocks(launch, multiprocessors, stream);
    case WeightFormat::q4_1:
    case WeightFormat::q4_k: return multiply_addend4_blocks(launch, multiprocessors, stream);
    case WeightFormat::q5_0:
    case WeightFormat::q5_1:
    case WeightFormat::q5_k: return multiply_addend5_blocks(launch, multiprocessors, stream);
    case WeightFormat::q2_k: return multiply_q2_k(launch, multiprocessors, stream);
    case WeightFormat::q3_k: return multiply_q3_k(launch, multiprocessors, stream);
    case WeightFormat::q6_k: return multiply_q6_k(launch, multiprocessors, stream);
    case WeightFormat::iq4_nl:
    case WeightFormat::iq4_xs: return multiply_iq4_blocks(launch, multiprocessors, stream);
    default: return cudaErrorInvalidValue;
  }
}

cudaError_t launch_format(WeightFormat format, MultiplyLaunch& launch, int multiprocessors, cudaStream_t stream) {
  switch (format) {
    case WeightFormat::bf16: return multiply_bf16(launch, multiprocessors, stream);
    case WeightFormat::fp16: return multiply_fp16(launch, multiprocessors, stream);
    case WeightFormat::fp32: return multiply_fp32(launch, multiprocessors, stream);
    case WeightFormat::int8: return multiply_int8(launch, multiprocessors, stream);
    case WeightFormat::nf4: return multiply_nf4(launch, multiprocessors, stream);
    case WeightFormat::fixed4: return multiply_fixed4(launch, multiprocessors, stream);
    case WeightFormat::mxfp4: return multiply_mxfp4(launch, multiprocessors, stream);
    case WeightFormat::fp8: return multiply_fp8(launch, multiprocessors, stream);
    case WeightFormat::sliced84: return multiply_sliced84(launch, multiprocessors, stream);
    case WeightFormat::sliced63: return multiply_sliced63(launch, multiprocessors, stream);
    case WeightFormat::sliced42: return multiply_sliced42(launch, multiprocessors, stream);
    default: return is_blocks(format) ? launch_blocks_of(format, launch, multiprocessors, stream) : cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t launch_multiply(const MultiplyJob* host_jobs, int count, const GluShape* host_glu, const DeviceTraits& device,
                            cudaStream_t stream) {
  bool launched[kMostMultiplyJobs] = {};
  for (int i = 0; i < count; ++i) {
    if (launched[i]) continue;
    MultiplyLaunch launch = {};
    launch.gated = host_glu != nullptr;
    if (host_glu != nullptr) launch.glu = *host_glu;
    launch.reading = host_jobs[i].reading;
    for (int j = i; j < count; ++j) {
      if (launched[j] || host_jobs[j].format != host_jobs[i].format) continue;
      if (host_jobs[j].reading != launch.reading) continue;
      if (tokens_at_once(host_jobs[j].n) != tokens_at_once(host_jobs[i].n)) continue;
      launched[j] = true;
      if (host_jobs[j].rows > 0) launch.parts[launch.count++] = part_of(host_jobs[j]);
    }
    if (launch.count == 0) continue;
    const cudaError_t error = launch_format(host_jobs[i].format, launch, device.multiprocessors, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace odmoe::cuda
