// How attention is divided: into slices of rows that share the scratch, tiles of queries that read keys and values
// together, and chunks of positions, which the one arithmetic adds up by themselves.
#pragma once
#include "device_code.h"
#include "kernels.h"

namespace odmoe::cuda {

// Scores and sums of more rows than this holds are computed slice by slice. A slice still fills a device.
inline constexpr uint64_t kMostAttentionScratch = 32 << 20;
// Queries (a row's heads over one key-value head, and those of further rows) that one read of a key or value serves.
inline constexpr int kMostTileQueries = 8;
// Blocks of threads that fill a device, some for each of its multiprocessors.
inline constexpr int kAttentionBlocks = 512;
// A chunk's scores come from two blocks of threads, each of which leaves the greatest of its own.
inline constexpr int kScoreRun = kAttentionChunk / 2;

// A row sees positions [first_visible, position].
ODMOE_BOTH int first_visible(int position, int sliding_window) {
  return sliding_window > 0 && position >= sliding_window ? position - sliding_window + 1 : 0;
}

// Chunks of which a row up to this position may see some.
ODMOE_BOTH int most_visible_chunks(int last_position, int sliding_window) {
  const int all = last_position / kAttentionChunk + 1;
  if (sliding_window <= 0 || sliding_window > last_position) return all;
  // A window that begins on a chunk's last position reaches into the most chunks.
  const int within = (sliding_window + kAttentionChunk - 2) / kAttentionChunk + 1;
  return within < all ? within : all;
}

struct AttentionTiles {
  int heads = 0;      // of a row in one tile
  int per_group = 0;  // tiles that a group of heads over one key-value head takes
  int rows = 0;       // in one tile
  int queries = 0;    // places for heads x rows: a power of two
};

// Rows of a tile read keys and values once for all of them, so there are as many as leave enough blocks.
inline AttentionTiles attention_tiles(int n, int chunks, const AttentionShape& shape) {
  const int group = shape.heads / shape.kv_heads;
  AttentionTiles tiles;
  tiles.per_group = (group + kMostTileQueries - 1) / kMostTileQueries;
  tiles.heads = (group + tiles.per_group - 1) / tiles.per_group;
  const int room = kMostTileQueries / tiles.heads;
  const int64_t spare = int64_t{n} * shape.kv_heads * tiles.per_group * chunks / kAttentionBlocks;
  tiles.rows = spare < 1 ? 1 : spare < room ? static_cast<int>(spare) : room;
  tiles.queries = 1;
  while (tiles.queries < tiles.heads * tiles.rows) tiles.queries *= 2;
  return tiles;
}

// Floats of scratch that a head of a row takes: a score for every position of its chunks and the greatest of each run
// of them, and every chunk's denominator and value sums.
inline int64_t attention_scratch_floats(int chunks, int head_dim) {
  return int64_t{chunks} * (kAttentionChunk + kAttentionChunk / kScoreRun + 1 + head_dim);
}

// Rows of a slice.
inline int attention_slice(int n, int32_t last_position, const AttentionShape& shape) {
  const int chunks = most_visible_chunks(last_position, shape.sliding_window);
  const int64_t row_floats = shape.heads * attention_scratch_floats(chunks, shape.head_dim);
  const int64_t row_bytes = row_floats * static_cast<int64_t>(sizeof(float));
  const int64_t rows = static_cast<int64_t>(kMostAttentionScratch) / row_bytes;
  return static_cast<int>(rows < 1 ? 1 : rows < n ? rows : n);
}

// A slice of rows. Scratch holds arrays over [row][head][chunk that the row sees]: chunk 0 of a row is the first that
// it sees.
struct AttentionWork {
  const DeviceAttentionRow* rows;
  const float* queries;
  int64_t stride;
  float* out;
  int n;
  AttentionShape shape;
  AttentionTiles tiles;
  int chunks;
  float scale;
  float* scores;
  float* greatest;
  float* denominators;
  float* value_sums;

  // Tiles of rows, tiles of heads, and so many parts of every chunk.
  dim3 grid(int parts) const {
    return dim3(static_cast<unsigned>((n + tiles.rows - 1) / tiles.rows), static_cast<unsigned>(shape.kv_heads * tiles.per_group),
                static_cast<unsigned>(chunks * parts));
  }
};

// The first two of attention's steps.
cudaError_t launch_attention_scores(const AttentionWork& work, cudaStream_t stream);
cudaError_t launch_attention_values(const AttentionWork& work, cudaStream_t stream);

}  // namespace odmoe::cuda
