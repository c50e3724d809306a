// Puts the inputs of products into the order of the weights' columns (grouped codes, odmoe/formats.h).
#include "grid_launch.h"
#include "kernels.h"

namespace odmoe::cuda {
namespace {

constexpr int kOrderThreads = 256;

struct OrderLaunch {
  OrderJob jobs[kMostMultiplyJobs];
};
static_assert(sizeof(OrderLaunch) <= 4096, "what a kernel takes");

__global__ void __launch_bounds__(kOrderThreads) order_columns(const __grid_constant__ OrderLaunch launch) {
  const OrderJob& job = launch.jobs[blockIdx.y];
  const int64_t count = int64_t{job.n} * job.columns;
  const int64_t stride = int64_t{gridDim.x} * kOrderThreads;
  for (int64_t i = int64_t{blockIdx.x} * kOrderThreads + threadIdx.x; i < count; i += stride) {
    const int64_t row = i / job.columns;
    const int column = static_cast<int>(i - row * job.columns);
    const int from = job.order[column];
    // A file that lies gives wrong numbers, and no read outside the row.
    job.out[i] = job.in[row * job.in_stride + (from < job.columns ? from : 0)];
  }
}

}  // namespace

cudaError_t launch_order_columns(const OrderJob* host_jobs, int count, cudaStream_t stream) {
  OrderLaunch launch = {};
  int64_t most = 0;
  for (int i = 0; i < count; ++i) {
    launch.jobs[i] = host_jobs[i];
    const int64_t values = int64_t{host_jobs[i].n} * host_jobs[i].columns;
    most = values > most ? values : most;
  }
  if (most == 0) return cudaSuccess;
  const unsigned blocks = blocks_for(most, kOrderThreads);
  constexpr unsigned kMostBlocks = 1024;
  const dim3 grid(blocks < kMostBlocks ? blocks : kMostBlocks, static_cast<unsigned>(count));
  return launch_grid(grid, kOrderThreads, stream, &order_columns, launch);
}

}  // namespace odmoe::cuda
