// The division of attention: slices of rows that share the scratch, tiles of queries that read keys and values together, and chunks
// of positions, each with its own sums in the one arithmetic.
#pragma once
#include "device_code.h"
#include "kernels.h"

namespace odmoe::cuda {

// Bytes of scratch for scores and sums. If more rows need more, they are computed slice by slice; a slice still fills a device.
inline constexpr uint64_t kMostAttentionScratch = 32 << 20;
// Most queries (a row's heads over one key-value head, and those of further rows) that one read of a key or value serves.
inline constexpr int kMostTileQueries = 8;
// The same for values, where many heads share a key-value head, as in latent attention, and there are enough tiles.
inline constexpr int kMostValueQueries = 16;
// Number of thread blocks that fills a device, with several for each multiprocessor.
inline constexpr int kAttentionBlocks = 512;
// Two blocks of threads compute a chunk's scores; each writes the greatest of its scores.
inline constexpr int kScoreRun = kAttentionChunk / 2;
inline constexpr int kScoreWarps = kScoreRun / kWarp;
// Least number of score blocks from which a block's warps get several tiles of heads over the same keys.
inline constexpr int kBlocksToShareKeys = 128;

// A row sees positions [first_visible, position].
ODMOE_BOTH int first_visible(int position, int sliding_window) {
  return sliding_window > 0 && position >= sliding_window ? position - sliding_window + 1 : 0;
}

// Most chunks in which a row up to this position may see positions.
ODMOE_BOTH int most_visible_chunks(int last_position, int sliding_window) {
  const int all = last_position / kAttentionChunk + 1;
  if (sliding_window <= 0 || sliding_window > last_position) return all;
  // A window that begins on a chunk's last position touches the most chunks.
  const int within = (sliding_window + kAttentionChunk - 2) / kAttentionChunk + 1;
  return within < all ? within : all;
}

struct AttentionTiles {
  int heads = 0;      // heads of a row in one tile
  int per_group = 0;  // tiles of a group of heads over one key-value head
  int rows = 0;       // rows in one tile
  int queries = 0;    // places for heads x rows: a power of two
};

// The rows of a tile share each read of keys and values, so a tile has as many rows as leave enough blocks.
inline AttentionTiles attention_tiles(int n, int chunks, const AttentionShape& shape, int most_queries = kMostTileQueries) {
  const int group = shape.heads / shape.kv_heads;
  AttentionTiles tiles;
  tiles.per_group = (group + most_queries - 1) / most_queries;
  tiles.heads = (group + tiles.per_group - 1) / tiles.per_group;
  const int room = most_queries / tiles.heads;
  const int64_t spare = int64_t{n} * shape.kv_heads * tiles.per_group * chunks / kAttentionBlocks;
  tiles.rows = spare < 1 ? 1 : spare < room ? static_cast<int>(spare) : room;
  tiles.queries = 1;
  while (tiles.queries < tiles.heads * tiles.rows) tiles.queries *= 2;
  return tiles;
}

// For values: more heads in a tile, where the tiles still fill a device.
inline AttentionTiles value_tiles(int n, int chunks, const AttentionShape& shape) {
  const int group = shape.heads / shape.kv_heads;
  if (group > kMostTileQueries) {
    const AttentionTiles large = attention_tiles(n, chunks, shape, kMostValueQueries);
    if (int64_t{n} * shape.kv_heads * large.per_group * chunks >= kBlocksToShareKeys) return large;
  }
  return attention_tiles(n, chunks, shape);
}

// Number of tiles of heads of one group in a score block. Their warps read the same keys at the same time, so that the first-level
// cache serves all but one of them. The other warps take other positions.
inline int tiles_of_score_block(int n, int chunks, const AttentionShape& shape, const AttentionTiles& tiles) {
  const int64_t row_tiles = (n + tiles.rows - 1) / tiles.rows;
  const int64_t blocks = row_tiles * shape.kv_heads * tiles.per_group * chunks * (kAttentionChunk / kScoreRun);
  int together = 1;
  while (2 * together <= kScoreWarps && 2 * together <= tiles.per_group && blocks / (2 * together) >= kBlocksToShareKeys) {
    together *= 2;
  }
  return together;
}

// Floats of scratch for one head of a row: a score for every position of its chunks and the greatest of each run
// of them, every chunk's denominator and value sums, and the term of the sink.
inline int64_t attention_scratch_floats(int chunks, int value_dim) {
  return int64_t{chunks} * (kAttentionChunk + kAttentionChunk / kScoreRun + 1 + value_dim) + 1;
}

// Rows of a slice.
inline int attention_slice(int n, int32_t last_position, const AttentionShape& shape) {
  const int chunks = most_visible_chunks(last_position, shape.sliding_window);
  const int64_t row_floats = shape.heads * attention_scratch_floats(chunks, shape.value_dim);
  const int64_t row_bytes = row_floats * static_cast<int64_t>(sizeof(float));
  const int64_t rows = static_cast<int64_t>(kMostAttentionScratch) / row_bytes;
  return static_cast<int>(rows < 1 ? 1 : rows < n ? rows : n);
}

// A slice of rows. Scratch holds arrays over [row][head][chunk that the row sees]: chunk 0 of a row is the first chunk that it
// sees.
struct AttentionWork {
  const DeviceAttentionRow* rows;
  const float* queries;
  int64_t stride;
  float* out;
  int n;
  AttentionShape shape;
  AttentionTiles tiles;  // tiles of this step
  int tiles_together;    // tiles of heads in a score block
  int chunks;
  float* scores;
  float* greatest;
  float* denominators;
  float* value_sums;
  float* sink_terms;  // [row][head]

  // The grid: tiles of rows, `per_group` blocks for a group's heads, and `parts` parts of all chunks.
  dim3 grid(int per_group, int parts) const {
    return dim3(static_cast<unsigned>((n + tiles.rows - 1) / tiles.rows), static_cast<unsigned>(shape.kv_heads * per_group),
                static_cast<unsigned>(chunks * parts));
  }
};

// The first two steps of attention.
cudaError_t launch_attention_scores(const AttentionWork& work, cudaStream_t stream);
cudaError_t launch_attention_values(const AttentionWork& work, cudaStream_t stream);

}  // namespace odmoe::cuda
