// Attention to pools of positions as launches on the backend's compute stream.
#include "cuda_backend.h"
#include "cuda_error.h"
#include "pool_work.h"

namespace odmoe::cuda {

void CudaBackend::pool(const PoolWork& work) {
  if (work.n <= 0) return;
  context_.enter();
  AttentionShape planes;
  planes.values_in_keys = true;
  PoolJob job;
  job.rows = send_rows(work.host_rows, work.n, planes).rows;
  job.out = work.out;
  job.gate_biases = work.gate_biases;
  job.n = work.n;
  job.size = work.size;
  job.positions = work.positions;
  job.overlaps = work.overlaps;
  check(launch_pool(job, stream_), "entries of pools");
}

void CudaBackend::gather_seen(const SeenWork& work) {
  if (work.n <= 0) return;
  context_.enter();
  const SentRows sent = send_rows(work.host_rows, work.n, {});
  SeenJob job;
  job.rows = sent.rows;
  job.out = work.out;
  job.out_stride = work.out_stride;
  job.chosen = work.chosen;
  job.n = work.n;
  job.size = work.size;
  job.positions = work.positions;
  job.entries = work.entries;
  job.window = work.window;
  job.whole_pools = work.whole_pools;
  job.most = static_cast<int>(seen_room(work, sent.last_position));
  if (job.most == 0) return;
  check(launch_gather_seen(job, stream_), "gathering what rows see");
}

}  // namespace odmoe::cuda
