// Products of sliced formats.
#include "kernels_sliced.h"
#include "kernels_streams.h"

namespace odmoe::cpu {
namespace {

template <int kBits>
void multiply_slices_of(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  const bool both = job.reading == SliceReading::both;
  if (both) return multiply_stream_of<SlicedStream<kBits, true>>(job, first_tile, tiles, scratch);
  multiply_stream_of<SlicedStream<kBits, false>>(job, first_tile, tiles, scratch);
}

}  // namespace

void ODMOE_INSTRUCTION_SET::multiply_slices(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  switch (slice_bits(job.format)) {
    case 4: return multiply_slices_of<4>(job, first_tile, tiles, scratch);
    case 3: return multiply_slices_of<3>(job, first_tile, tiles, scratch);
    default: return multiply_slices_of<2>(job, first_tile, tiles, scratch);
  }
}

}  // namespace odmoe::cpu
