// Shared code of the attention kernels: the rows and heads that a block of threads processes together.
#pragma once
#include "attention_work.h"
#include "warp_folds.h"

#if defined(__CUDACC__) || defined(ODMOE_SIMULATED_CUDA)
namespace odmoe::cuda {

// Rows of a tile that share a cache and begin in the same chunk: they are processed together.
struct RowRun {
  int first;
  int rows;
  int first_chunk;
  int begin;  // positions [begin, end) that any of the rows sees
  int end;
  int shared_begin;  // positions that all of the rows see
  int shared_end;
};

__device__ __forceinline__ RowRun next_run(const AttentionWork& work, int first, int last) {
  const int window = work.shape.sliding_window;
  const DeviceAttentionRow leader = work.rows[first];
  RowRun run;
  run.first = first;
  run.rows = 1;
  run.begin = run.shared_begin = first_visible(leader.position, window);
  run.end = run.shared_end = leader.position + 1;
  run.first_chunk = run.begin / kAttentionChunk;
  for (int i = first + 1; i < last; ++i) {
    const DeviceAttentionRow row = work.rows[i];
    const int begin = first_visible(row.position, window);
    const bool joins = row.key_blocks == leader.key_blocks && row.value_blocks == leader.value_blocks &&
                       begin / kAttentionChunk == run.first_chunk;
    if (!joins) break;
    run.begin = min(run.begin, begin);
    run.end = max(run.end, row.position + 1);
    run.shared_begin = max(run.shared_begin, begin);
    run.shared_end = min(run.shared_end, row.position + 1);
    ++run.rows;
  }
  return run;
}

// The tile of heads that a block of threads works on.
struct HeadTile {
  int kv_head;
  int first;  // head of the group

  // Tile `index` of a group.
  __device__ HeadTile(const AttentionWork& work, int kv_head_index, int index)
      : kv_head(kv_head_index), first(index * work.tiles.heads) {}

  __device__ bool exists(const AttentionWork& work) const { return first < work.shape.heads / work.shape.kv_heads; }
};

// Query `index` of a run. A place without a query repeats the last query, and its results are not written.
struct QueryPlace {
  bool taken;
  int row;
  int head;
  int begin;
  int end;

  __device__ QueryPlace(const AttentionWork& work, const RowRun& run, const HeadTile& tile, int index) {
    const int group = work.shape.heads / work.shape.kv_heads;
    const int row_of_run = index / work.tiles.heads;
    const int head_of_group = tile.first + index % work.tiles.heads;
    taken = row_of_run < run.rows && head_of_group < group;
    row = run.first + min(row_of_run, run.rows - 1);
    head = tile.kv_head * group + min(head_of_group, group - 1);
    const int position = work.rows[row].position;
    begin = first_visible(position, work.shape.sliding_window);
    end = position + 1;
  }

  __device__ int64_t index(const AttentionWork& work) const { return int64_t{row} * work.shape.heads + head; }
};

}  // namespace odmoe::cuda
#endif
