// Matrix products and attention, cut into tasks.
#include <cstring>

#include "cpu_backend.h"
#include "weight_layout.h"

namespace odmoe::cpu {
namespace {

// Passes over the weights that so many tokens cost, about.
int64_t passes_of(const Product& product) { return (product.n + 2) / 3; }

int64_t work_of(const Product& product) {
  const Matrix& weights = *product.weights;
  return row_tiles(weights.rows) * tile_bytes(weights.format, weights.columns) * passes_of(product);
}

// Heads of a group that attend together, at least: with fewer, a pass over the keys computes too little.
constexpr int64_t kFewestHeads = 4;

}  // namespace

// Tiles of one task: enough to be worth the hand-over, and of all products together so many that each thread gets some tasks.
CpuBackend::PlannedProduct CpuBackend::plan(const Product& product, int64_t first_task, int64_t total_work) const {
  const Matrix& weights = *product.weights;
  const int64_t tiles = row_tiles(weights.rows);
  const int64_t tile_work = tile_bytes(weights.format, weights.columns) * passes_of(product);
  const int64_t fair = total_work / (pool_.threads() * kTasksPerThread);
  const int64_t task_tiles = std::max<int64_t>(1, std::max(kTaskBytes, fair) / tile_work);
  return {{weights.format, static_cast<const uint8_t*>(weights.storage.data), weights.rows, weights.columns, product.in,
           product.in_stride, product.out, product.out_stride, product.n},
          tiles,
          task_tiles,
          first_task,
          first_task + (tiles + task_tiles - 1) / task_tiles};
}

// The tasks of all products follow one another, so that threads meet once for all.
void CpuBackend::multiply(const Product* products, int count) {
  products_.clear();
  int64_t total_work = 0;
  for (const Product* product = products; product != products + count; ++product) total_work += work_of(*product);
  uint64_t expansion = 0;
  int64_t tasks = 0;
  for (const Product* product = products; product != products + count; ++product) {
    if (product->n <= 0) continue;
    products_.push_back(plan(*product, tasks, total_work));
    tasks = products_.back().end_task;
    const Matrix& weights = *product->weights;
    expansion = std::max(expansion, expansion_bytes(weights.format, weights.columns, product->n));
  }
  reserve(expansion_scratch_, expansion * static_cast<uint64_t>(pool_.threads()));
  uint8_t* const expanded = static_cast<uint8_t*>(expansion_scratch_.data);
  pool_.run(tasks, [=, this](int64_t task, int thread) {
    const auto planned = std::partition_point(products_.begin(), products_.end(),
                                              [task](const PlannedProduct& product) { return product.end_task <= task; });
    const int64_t first = (task - planned->first_task) * planned->task_tiles;
    kernels_.matmul(planned->job, first, std::min(planned->task_tiles, planned->tiles - first),
                    {thread_scratch(thread), expanded + expansion * static_cast<uint64_t>(thread)});
  });
}

void CpuBackend::store_key_values(const AttentionRow* host_rows, const float* keys, const float* values, int64_t stride, int n,
                                  const AttentionShape& shape) {
  const auto store = [&](float* block, const float* from, int64_t in_chunk, int64_t size) {
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      std::memcpy(block + (head * kAttentionChunk + in_chunk) * size, from + head * size,
                  static_cast<size_t>(size) * sizeof(float));
    }
  };
  for (int64_t i = 0; i < n; ++i) {
    const AttentionRow& row = host_rows[i];
    const int64_t chunk = row.position / kAttentionChunk;
    const int64_t in_chunk = row.position % kAttentionChunk;
    store(row.cache.key_blocks[chunk], keys + i * stride, in_chunk, shape.head_dim);
    if (!shape.values_in_keys) store(row.cache.value_blocks[chunk], values + i * stride, in_chunk, shape.value_dim);
  }
}

void CpuBackend::attention(float* out, const AttentionRow* host_rows, const float* queries, int64_t stride, int n,
                           const AttentionShape& shape) {
  if (n <= 0) return;
  int64_t positions = 0;
  for (int i = 0; i < n; ++i) positions = std::max<int64_t>(positions, int64_t{host_rows[i].position} + 1);
  const size_t floats = cpu::attention_scratch(shape, positions);
  reserve(attention_scratch_, floats * sizeof(float) * static_cast<size_t>(pool_.threads()));
  float* const scratch = static_cast<float*>(attention_scratch_.data);
  const AttentionJob job{out, host_rows, queries, stride, shape};
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t wanted_tasks = 2 * pool_.threads();
  // Rows taken together: as many as share a register tile, unless that would leave threads idle.
  const int64_t fair = std::max<int64_t>(1, int64_t{n} * shape.kv_heads / wanted_tasks);
  const int64_t together = std::min<int64_t>(std::max<int64_t>(1, kMaxQueries / group), fair);
  const int64_t row_tasks = (n + together - 1) / together;
  // Heads of a group are divided where they are more than are taken together, and where threads would be left idle.
  const int64_t enough_parts = (wanted_tasks + row_tasks * shape.kv_heads - 1) / (row_tasks * shape.kv_heads);
  const int64_t parts =
      std::max((group + kMaxQueries - 1) / kMaxQueries, std::min(enough_parts, std::max<int64_t>(1, group / kFewestHeads)));
  pool_.run(row_tasks * shape.kv_heads * parts, [=, this](int64_t task, int thread) {
    const int64_t first_row = task % row_tasks * together;
    const int64_t part = task / row_tasks % parts;
    const int64_t first_head = task / row_tasks / parts * group + part * group / parts;
    const int64_t heads = (part + 1) * group / parts - part * group / parts;
    kernels_.attention(job, static_cast<int>(first_row), static_cast<int>(std::min(together, n - first_row)),
                       static_cast<int>(first_head), static_cast<int>(heads), scratch + floats * static_cast<size_t>(thread));
  });
}

}  // namespace odmoe::cpu
