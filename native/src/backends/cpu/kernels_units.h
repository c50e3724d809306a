// The functions by which the units of one instruction set call one another. The namespace has the name of the set, so that no other
// set's function can be taken in their place.
#pragma once
#include "kernel_table.h"

namespace odmoe::cpu::ODMOE_INSTRUCTION_SET {

// The tiles of a product in any format: `expand` writes the weights of some blocks of columns in the fp32 layout (or the bf16 layout,
// where a caller says so). Within a tile it is called for one run of blocks after the other.
struct AnyTiles {
  void* stream;
  void (*expand)(void* stream, int64_t tile, int64_t block, int64_t blocks, void* out);
};

void matmul(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch);
// The products of sliced formats, of block formats, and of those of GGUF.
void multiply_slices(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch);
void multiply_blocks(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch);
void multiply_gguf(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch);
// Expands the weights to FP32 for any number of tokens.
void multiply_expanded(const MatmulJob& job, int64_t first_tile, int64_t tiles, const MatmulScratch& scratch, const AnyTiles& any);

void read_row(float* out, const Matrix& matrix, int64_t row);
bool write_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const uint8_t* const* planes, uint8_t* scratch);

}  // namespace odmoe::cpu::ODMOE_INSTRUCTION_SET
