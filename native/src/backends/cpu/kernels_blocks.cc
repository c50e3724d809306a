// Products of block formats that are not GGUF's, and of fp8.
#include "kernels_blocks_streams.h"
#include "kernels_streams.h"

namespace odmoe::cpu {
namespace {

template <int kBits>
void multiply_grouped(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  const bool wide = grouped_codes(job.format).scales == ScaleType::fp32;
  if (wide) return multiply_stream_of<GroupedStream<kBits, true>>(job, first_tile, tiles, scratch);
  multiply_stream_of<GroupedStream<kBits, false>>(job, first_tile, tiles, scratch);
}

}  // namespace

void ODMOE_INSTRUCTION_SET::multiply_blocks(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  switch (kind_of(job.format)) {
    case WeightFormat::fp8:
    case WeightFormat::fp8_row:
    case WeightFormat::fp8_tile:
    case WeightFormat::mxfp8: return multiply_stream_of<E4m3Stream>(job, first_tile, tiles, scratch);
    case WeightFormat::nvfp4_multiplied:
    case WeightFormat::nvfp4_divided: return multiply_stream_of<Nvfp4Stream>(job, first_tile, tiles, scratch);
    case WeightFormat::grouped4: return multiply_grouped<4>(job, first_tile, tiles, scratch);
    case WeightFormat::grouped8: return multiply_grouped<8>(job, first_tile, tiles, scratch);
    default: break;
  }
}

}  // namespace odmoe::cpu
