// Products of GGUF's formats.
#include "kernels_blocks_streams.h"
#include "kernels_streams.h"
#include "odmoe/block_values.h"

namespace odmoe::cpu {
namespace {

// Instruction sets without vectors take the scalar reference for all of these formats.
struct ReferenceTiles {
  const MatmulJob& job;
  Split split;
  BlockShape shape;
  int64_t bytes;
  static void expand(void* self, int64_t tile, int64_t block, int64_t blocks, void* out) {
    const ReferenceTiles& tiles = *static_cast<const ReferenceTiles*>(self);
    const uint8_t* const data = tiles.job.weights + tile * tiles.bytes;
    float* to = static_cast<float*>(out);
    for (int64_t i = block * kTileRows; i < (block + blocks) * kTileRows; ++i, to += kLanes) {
      const int64_t column = i / kTileRows * kLanes;
      const uint8_t* const own = data + (column / tiles.shape.columns * kTileRows + i % kTileRows) * tiles.shape.bytes;
      const int64_t in_block = column % tiles.shape.columns;
      float values[256];
      block_row_to_floats(tiles.split, &own, in_block + kLanes, values);
      __builtin_memcpy(to, values + in_block, kLanes * sizeof(float));
    }
  }
};

template <class Format>
void multiply_gguf_format(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  if constexpr (kWidth > 1) {
    multiply_stream_of<GgufStream<Format>>(job, first_tile, tiles, scratch);
  } else {
    const auto split = static_cast<Split>(job.format);
    ReferenceTiles reference{job, split, block_shape(split), tile_bytes(job.format, job.columns)};
    ODMOE_INSTRUCTION_SET::multiply_expanded(job, first_tile, tiles, scratch, {&reference, &reference.expand});
  }
}

}  // namespace

void ODMOE_INSTRUCTION_SET::multiply_gguf(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch) {
  switch (kind_of(job.format)) {
    case WeightFormat::q4_0: return multiply_gguf_format<Q4_0>(job, first_tile, tiles, scratch);
    case WeightFormat::q4_1: return multiply_gguf_format<Q4_1>(job, first_tile, tiles, scratch);
    case WeightFormat::q5_0: return multiply_gguf_format<Q5_0>(job, first_tile, tiles, scratch);
    case WeightFormat::q5_1: return multiply_gguf_format<Q5_1>(job, first_tile, tiles, scratch);
    case WeightFormat::q8_0: return multiply_gguf_format<Q8_0>(job, first_tile, tiles, scratch);
    case WeightFormat::q2_k: return multiply_gguf_format<Q2K>(job, first_tile, tiles, scratch);
    case WeightFormat::q3_k: return multiply_gguf_format<Q3K>(job, first_tile, tiles, scratch);
    case WeightFormat::q4_k: return multiply_gguf_format<Q4K>(job, first_tile, tiles, scratch);
    case WeightFormat::q5_k: return multiply_gguf_format<Q5K>(job, first_tile, tiles, scratch);
    case WeightFormat::q6_k: return multiply_gguf_format<Q6K>(job, first_tile, tiles, scratch);
    case WeightFormat::iq4_nl: return multiply_gguf_format<Iq4Nl>(job, first_tile, tiles, scratch);
    case WeightFormat::iq4_xs: return multiply_gguf_format<Iq4Xs>(job, first_tile, tiles, scratch);
    default: break;
  }
}

}  // namespace odmoe::cpu
