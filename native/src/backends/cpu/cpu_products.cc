// Matrix products and attention, cut into tasks.
#include <cstring>
#include <string>

#include "cpu_backend.h"
#include "odmoe/error.h"
#include "weight_layout.h"

namespace odmoe::cpu {
namespace {

// Approximate number of passes over the weights for the product's tokens.
int64_t passes_of(const Product& product) { return (product.n + 2) / 3; }

int64_t work_of(const Product& product) {
  const Matrix& weights = *product.weights;
  return row_tiles(weights.rows) * tile_bytes(weights.format, weights.columns) * passes_of(product);
}

// If there are few batches, their attention is cut into parts of this many positions, queries and dimensions.
constexpr int64_t kPartPositions = kAttentionChunk;
constexpr int64_t kPartQueries = 2;
constexpr int64_t kPartDimensions = 64;

// Most batches that a task takes together, and floats of their scratch, which grows with the positions.
constexpr int64_t kMostBatches = 4;
constexpr int64_t kScratchFloats = 1 << 20;

// True if the columns of the matrix have another order than those of the inputs.
bool has_order(const Product& product) {
  return product.n > 0 && is_grouped(product.weights->format) && grouped_codes(product.weights->format).order_bytes != 0;
}

int64_t parts_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

}  // namespace

// Chooses the tiles of one task: enough to be worth the hand-over, and few enough that each thread gets some tasks of all products
// together.
CpuBackend::PlannedProduct CpuBackend::plan(const Product& product, int64_t first_task, int64_t total_work) {
  const Matrix& weights = *product.weights;
  if (slice_bits(weights.format) != 0 && weights.reading == SliceReading::both && weights.lower.data == nullptr) {
    throw Error(ErrorCode::internal, "a product reads a lower slice that is not loaded");
  }
  const int64_t tiles = row_tiles(weights.rows);
  const int64_t tile_work = tile_bytes(weights.format, weights.columns) * passes_of(product);
  const int64_t fair = total_work / (pool_.threads() * kTasksPerThread);
  const int64_t task_tiles = std::max<int64_t>(1, std::max(kTaskBytes, fair) / tile_work);
  const bool ordered = has_order(product);
  const float* const in = ordered ? ordered_input(product) : product.in;
  const int64_t in_stride = ordered ? weights.columns : product.in_stride;
  return {{weights.format, static_cast<const uint8_t*>(weights.storage.data), weights.rows, weights.columns, in, in_stride,
           product.out, product.out_stride, product.n, static_cast<const uint8_t*>(weights.lower.data), weights.reading},
          tiles,
          task_tiles,
          first_task,
          first_task + (tiles + task_tiles - 1) / task_tiles};
}

int64_t CpuBackend::work_of(const Product* products, int count) {
  int64_t total = 0;
  for (const Product* product = products; product != products + count; ++product) total += cpu::work_of(*product);
  return total;
}

// Bytes of each thread's part of expansion_scratch_.
uint64_t CpuBackend::reserve_expansion(const Product* products, int count) {
  uint64_t expansion = 0;
  for (const Product* product = products; product != products + count; ++product) {
    const Matrix& weights = *product->weights;
    if (product->n > 0) expansion = std::max(expansion, expansion_bytes(weights.format, weights.columns, product->n));
  }
  reserve(expansion_scratch_, expansion * static_cast<uint64_t>(pool_.threads()));
  return expansion;
}

uint64_t CpuBackend::expert_scratch_bytes(WeightFormat format, int64_t rows, int64_t hidden_size, int64_t intermediate_size) const {
  const int n = static_cast<int>(rows);
  const uint64_t most = std::max(expansion_bytes(format, hidden_size, n), expansion_bytes(format, intermediate_size, n));
  return most * static_cast<uint64_t>(pool_.threads());
}

void CpuBackend::reserve_ordered(const Product* products, int count) {
  int64_t floats = 0;
  for (const Product* product = products; product != products + count; ++product) {
    if (has_order(*product)) floats += product->n * product->weights->columns;
  }
  reserve(ordered_inputs_, static_cast<uint64_t>(floats) * sizeof(float));
  ordered_floats_ = 0;
}

// Takes the next floats of ordered_inputs_. The order came from a file, and each row of it alone could not be checked.
const float* CpuBackend::ordered_input(const Product& product) {
  const Matrix& weights = *product.weights;
  const int64_t columns = weights.columns;
  const auto* const order =
      static_cast<const uint8_t*>(weights.storage.data) + scales_offset(weights.format, weights.rows, columns);
  if (weights.rows * grouped_codes(weights.format).order_bytes < 2 * columns) {
    throw Error(ErrorCode::internal, "a matrix has an order for some of its columns only");
  }
  const auto place = [order](int64_t i) { return int64_t{order[2 * i]} | int64_t{order[2 * i + 1]} << 8; };
  int64_t most = 0;
  for (int64_t i = 0; i < columns; ++i) most = std::max(most, place(i));
  if (most >= columns) {
    throw Error(ErrorCode::model_corrupt, "the order of a matrix's columns names column " + std::to_string(most) + " of " +
                                              std::to_string(columns) + "; the pack is damaged, make it again");
  }
  float* const out = static_cast<float*>(ordered_inputs_.data) + ordered_floats_;
  ordered_floats_ += product.n * columns;
  for_ranges(product.n, columns, [=](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* const in = product.in + i * product.in_stride;
      for (int64_t j = 0; j < columns; ++j) out[i * columns + j] = in[place(j)];
    }
  });
  return out;
}

// Index of the product to which this task belongs.
size_t CpuBackend::planned_of(int64_t task) const {
  const auto planned = std::partition_point(products_.begin(), products_.end(),
                                            [task](const PlannedProduct& product) { return product.end_task <= task; });
  return static_cast<size_t>(planned - products_.begin());
}

// The tasks of all products follow one another, so that threads synchronize only once.
void CpuBackend::multiply(const Product* products, int count) {
  products_.clear();
  reserve_ordered(products, count);
  const int64_t total_work = work_of(products, count);
  int64_t tasks = 0;
  for (const Product* product = products; product != products + count; ++product) {
    if (product->n <= 0) continue;
    products_.push_back(plan(*product, tasks, total_work));
    tasks = products_.back().end_task;
  }
  const uint64_t expansion = reserve_expansion(products, count);
  pool_.run(tasks, [=, this](int64_t task, int thread) {
    const PlannedProduct& planned = products_[planned_of(task)];
    const int64_t first = (task - planned.first_task) * planned.task_tiles;
    kernels_.matmul(planned.job, first, std::min(planned.task_tiles, planned.tiles - first), product_scratch(thread, expansion));
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

// Consecutive rows with one cache form batches of the largest size, unless that leaves threads idle.
void CpuBackend::plan_batches(const AttentionJob& job, int n) {
  const AttentionShape& shape = job.shape;
  const int group = shape.heads / shape.kv_heads;
  const int heads_parts = (group + kMaxQueries - 1) / kMaxQueries;
  const int fair = std::max(1, n * shape.kv_heads * heads_parts / (2 * pool_.threads()));
  const int together = std::min(std::max(1, kMaxQueries / group), fair);
  const auto same_cache = [&](int a, int b) {
    return job.rows[a].cache.key_blocks == job.rows[b].cache.key_blocks &&
           job.rows[a].cache.value_blocks == job.rows[b].cache.value_blocks;
  };
  // Batches that read the same keys follow one another.
  batches_.clear();
  for (int task = 0; task < shape.kv_heads * heads_parts; ++task) {
    const int part = task % heads_parts;
    const int first_head = task / heads_parts * group + part * group / heads_parts;
    const int heads = (part + 1) * group / heads_parts - part * group / heads_parts;
    for (int first = 0; first < n;) {
      int64_t positions = int64_t{job.rows[first].position} + 1;
      int rows = 1;
      for (; rows < together && first + rows < n && same_cache(first, first + rows); ++rows) {
        positions = std::max<int64_t>(positions, int64_t{job.rows[first + rows].position} + 1);
      }
      batches_.push_back({first, rows, first_head, heads, positions, nullptr});
      first += rows;
    }
  }
}

// A task processes some batches chunk by chunk, so that keys and values come from memory once for all these batches.
void CpuBackend::attend_whole(const AttentionJob& job) {
  int64_t positions = 0;
  for (const AttentionBatch& batch : batches_) positions = std::max(positions, batch.positions);
  const int64_t floats = attention_scratch(job.shape, positions);
  const auto count = static_cast<int64_t>(batches_.size());
  const int64_t fair = std::max<int64_t>(1, count / (2 * pool_.threads()));
  const int64_t together = std::clamp<int64_t>(kScratchFloats / floats, 1, std::min(fair, kMostBatches));
  reserve(attention_scratch_, static_cast<uint64_t>(floats * together * pool_.threads()) * sizeof(float));
  float* const scratch = static_cast<float*>(attention_scratch_.data);
  pool_.run(parts_of(count, together), [=, &job, this](int64_t task, int thread) {
    AttentionBatch taken[kMostBatches];
    int batches = 0;
    for (int64_t i = task * together; i < std::min(count, (task + 1) * together); ++i, ++batches) {
      taken[batches] = batches_[static_cast<size_t>(i)];
      taken[batches].scratch = scratch + floats * (thread * together + batches);
    }
    for (int64_t chunk = 0; chunk < positions; chunk += kAttentionChunk) {
      for (int i = 0; i < batches; ++i) kernels_.attention_scores(job, taken[i], chunk, chunk + kAttentionChunk);
    }
    for (int i = 0; i < batches; ++i) kernels_.attention_weights(job, taken[i], 0, taken[i].rows * taken[i].heads);
    for (int64_t chunk = 0; chunk < positions; chunk += kAttentionChunk) {
      for (int i = 0; i < batches; ++i) {
        kernels_.attention_values(job, taken[i], chunk, chunk + kAttentionChunk, 0, job.shape.value_dim);
      }
    }
  });
}

// All threads work on each batch's scores, then on its weights, then on its values.
void CpuBackend::attend_in_parts(const AttentionJob& job) {
  int64_t positions = 0;
  int64_t queries = 0;
  for (const AttentionBatch& batch : batches_) {
    positions = std::max(positions, batch.positions);
    queries = std::max<int64_t>(queries, batch.rows * batch.heads);
  }
  const int64_t floats = attention_scratch(job.shape, positions);
  reserve(attention_scratch_, static_cast<uint64_t>(floats) * batches_.size() * sizeof(float));
  for (size_t i = 0; i < batches_.size(); ++i) {
    batches_[i].scratch = static_cast<float*>(attention_scratch_.data) + floats * static_cast<int64_t>(i);
  }
  // Calls body(batch, begin, end) for parts of `count` out of `size` of each batch.
  const auto run = [this](int64_t count, int64_t size, const auto& body) {
    const int64_t parts = parts_of(count, size);
    pool_.run(static_cast<int64_t>(batches_.size()) * parts, [=, &body, this](int64_t task, int) {
      const int64_t begin = task % parts * size;
      body(batches_[static_cast<size_t>(task / parts)], begin, std::min(count, begin + size));
    });
  };
  run(positions, kPartPositions,
      [&](const AttentionBatch& batch, int64_t begin, int64_t end) { kernels_.attention_scores(job, batch, begin, end); });
  run(queries, kPartQueries, [&](const AttentionBatch& batch, int64_t begin, int64_t end) {
    end = std::min<int64_t>(end, batch.rows * batch.heads);
    if (begin < end) kernels_.attention_weights(job, batch, static_cast<int>(begin), static_cast<int>(end));
  });
  run(job.shape.value_dim, kPartDimensions, [&](const AttentionBatch& batch, int64_t begin, int64_t end) {
    kernels_.attention_values(job, batch, 0, batch.positions, begin, end);
  });
}

void CpuBackend::attention(float* out, const AttentionRow* host_rows, const float* queries, int64_t stride, int n,
                           const AttentionShape& shape) {
  if (n <= 0) return;
  const AttentionJob job{out, host_rows, queries, stride, shape};
  plan_batches(job, n);
  // Parts of one batch share its scratch. If queries needed padding, several threads would write the padded queries at a time.
  const bool divisible = pool_.threads() > 1 && shape.head_dim % kLanes == 0;
  if (divisible && static_cast<int64_t>(batches_.size()) < 2 * pool_.threads()) return attend_in_parts(job);
  attend_whole(job);
}

}  // namespace odmoe::cpu
