// The CPU device: an arena, a thread pool, and the kernels of one instruction set spread over the threads.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "arena.h"
#include "kernel_table.h"
#include "odmoe/error.h"
#include "thread_pool.h"
#include "weight_layout.h"

namespace odmoe {
namespace cpu {
namespace {

// Below this many bytes of weights or elements an operator is not worth waking threads for.
constexpr int64_t kTaskBytes = 64 << 10;
constexpr int64_t kTaskElements = 8192;
// Tasks per thread, so that a thread that is held up does not hold up the others.
constexpr int64_t kTasksPerThread = 8;

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options)
      : kernels_(choose_kernels(options.instruction_set)),
        arena_(options.budget_bytes),
        pool_(options.threads > 0 ? options.threads : usable_threads()),
        scratch_(kThreadScratch * static_cast<size_t>(pool_.threads())) {}

  ~CpuBackend() override {
    arena_.release(attention_scratch_);
    arena_.release(expansion_scratch_);
  }

  DeviceInfo info() const override {
    DeviceInfo info;
    info.backend = "cpu";
    info.instruction_set = kernels_.instruction_set;
    info.threads = pool_.threads();
    info.budget_bytes = arena_.budget_bytes();
    info.used_bytes = arena_.used_bytes();
    info.high_water_bytes = arena_.high_water_bytes();
    return info;
  }

  DeviceBuffer allocate(uint64_t bytes) override { return arena_.allocate(bytes); }
  void release(DeviceBuffer& buffer) noexcept override { arena_.release(buffer); }
  void copy_to_device(void* device, const void* host, uint64_t bytes) override { copy(device, host, bytes); }
  void copy_to_host(void* host, const void* device, uint64_t bytes) override { copy(host, device, bytes); }

  uint64_t matrix_bytes(WeightFormat format, int64_t rows, int64_t columns) const override {
    return storage_bytes(format, rows, columns);
  }

  bool write_rows(Matrix& matrix, int64_t first_row, int64_t rows, Split split, const uint8_t* const* planes) override {
    if (first_row < 0 || rows < 0 || first_row + rows > matrix.rows ||
        matrix.storage.bytes < storage_bytes(matrix.format, matrix.rows, matrix.columns)) {
      throw Error(ErrorCode::internal, "rows " + std::to_string(first_row) + " to " + std::to_string(first_row + rows) +
                                           " do not fit a matrix of " + std::to_string(matrix.rows) + " rows in " +
                                           std::to_string(matrix.storage.bytes) + " bytes");
    }
    std::vector<uint8_t> scratch(write_scratch_bytes(matrix.format, matrix.columns));
    return kernels_.write_rows(matrix, first_row, rows, split, planes, scratch.data());
  }

  void embed(float* out, const Matrix& embedding, const int32_t* host_ids, int n) override {
    if (embedding.format == WeightFormat::int8 || embedding.format == WeightFormat::nf4) {
      throw Error(ErrorCode::internal, "an embedding must not be quantized");
    }
    for (int i = 0; i < n; ++i) {
      if (host_ids[i] < 0 || host_ids[i] >= embedding.rows) {
        throw Error(ErrorCode::request_invalid,
                    "token id " + std::to_string(host_ids[i]) + " is outside the vocabulary of " + std::to_string(embedding.rows));
      }
      kernels_.read_row(out + i * embedding.columns, embedding, host_ids[i]);
    }
  }

  void rms_norm(float* out, const float* in, const float* weight, int n, int size, float epsilon) override {
    for_rows(n, size, [=, this](int64_t i) { kernels_.rms_norm(out + i * size, in + i * size, weight, size, epsilon); });
  }

  // The tasks of all products follow one another, so that threads meet once for all.
  void multiply(const Product* products, int count) override {
    jobs_.clear();
    uint64_t expansion = 0;
    int64_t tasks = 0;
    for (const Product* product = products; product != products + count; ++product) {
      if (product->n <= 0) continue;
      jobs_.push_back(plan(*product, tasks));
      tasks = jobs_.back().end_task;
      const Matrix& weights = *product->weights;
      expansion = std::max(expansion, expansion_bytes(weights.format, weights.columns, product->n));
    }
    reserve(expansion_scratch_, expansion * static_cast<uint64_t>(pool_.threads()));
    uint8_t* const expanded = static_cast<uint8_t*>(expansion_scratch_.data);
    pool_.run(tasks, [=, this](int64_t task, int thread) {
      const PlannedProduct* planned = jobs_.data();
      while (task >= planned->end_task) ++planned;
      const int64_t first = (task - planned->first_task) * planned->task_tiles;
      kernels_.matmul(planned->job, first, std::min(planned->task_tiles, planned->tiles - first),
                      {thread_scratch(thread), expanded + expansion * static_cast<uint64_t>(thread)});
    });
  }

  void rope(float* heads, int64_t stride, const float* cos, const float* sin, int n, int head_count, int head_dim) override {
    const int half = head_dim / 2;
    for_rows(n, int64_t{head_count} * head_dim, [=, this](int64_t i) {
      for (int head = 0; head < head_count; ++head) {
        kernels_.rope(heads + i * stride + int64_t{head} * head_dim, cos + i * half, sin + i * half, half);
      }
    });
  }

  void store_key_values(const AttentionRow* host_rows, const float* keys, const float* values, int64_t stride, int n,
                        const AttentionShape& shape) override {
    const size_t head_bytes = static_cast<size_t>(shape.head_dim) * sizeof(float);
    for (int i = 0; i < n; ++i) {
      const int64_t position = host_rows[i].position;
      float* const key_block = host_rows[i].cache.key_blocks[position / kAttentionChunk];
      float* const value_block = host_rows[i].cache.value_blocks[position / kAttentionChunk];
      for (int64_t head = 0; head < shape.kv_heads; ++head) {
        const int64_t to = (head * kAttentionChunk + position % kAttentionChunk) * shape.head_dim;
        const int64_t from = i * stride + head * shape.head_dim;
        std::memcpy(key_block + to, keys + from, head_bytes);
        std::memcpy(value_block + to, values + from, head_bytes);
      }
    }
  }

  void attention(float* out, const AttentionRow* host_rows, const float* queries, int64_t stride, int n,
                 const AttentionShape& shape) override {
    if (n <= 0) return;
    int64_t positions = 0;
    for (int i = 0; i < n; ++i) positions = std::max<int64_t>(positions, int64_t{host_rows[i].position} + 1);
    const size_t floats = cpu::attention_scratch(shape, positions);
    reserve(attention_scratch_, floats * sizeof(float) * static_cast<size_t>(pool_.threads()));
    float* const scratch = static_cast<float*>(attention_scratch_.data);
    const AttentionJob job{out, host_rows, queries, stride, shape};
    // Rows taken together: as many as share a register tile, unless that would leave threads idle.
    const int group = shape.heads / shape.kv_heads;
    const int64_t fair = std::max<int64_t>(1, int64_t{n} * shape.kv_heads / (2 * pool_.threads()));
    const int64_t together = std::min<int64_t>(std::max(1, kMaxQueries / group), fair);
    const int64_t row_tasks = (n + together - 1) / together;
    pool_.run(row_tasks * shape.kv_heads, [=, this](int64_t task, int thread) {
      const int64_t first = task % row_tasks * together;
      const int rows = static_cast<int>(std::min(together, n - first));
      kernels_.attention(job, static_cast<int>(task / row_tasks), static_cast<int>(first), rows,
                         scratch + floats * static_cast<size_t>(thread));
    });
  }

  void router(int32_t* host_experts, float* host_weights, const float* logits, int n, int experts, int k, bool normalize,
              const HostCopy& along) override {
    if (experts > kMaxExperts || k < 1 || k > experts) {
      throw Error(ErrorCode::model_unsupported, "a router cannot choose " + std::to_string(k) + " of " + std::to_string(experts) +
                                                    " experts; at most " + std::to_string(kMaxExperts) + " are supported");
    }
    const int64_t work = int64_t{experts} * (k + 8);
    for_rows(n, work, [=, this](int64_t i, int thread) {
      kernels_.router(host_experts + i * k, host_weights + i * k, logits + i * experts, experts, k, normalize,
                      thread_scratch(thread));
    });
    copy(along.host, along.device, along.bytes);
  }

  void swiglu(float* out, const float* gate_up, int n, int size) override {
    for_pieces(n, size, [=, this](int64_t i, int64_t begin, int64_t end) {
      const float* gate = gate_up + i * 2 * size;
      kernels_.swiglu(out + i * size + begin, gate + begin, gate + size + begin, end - begin);
    });
  }

  void add(float* x, const float* y, int64_t count) override {
    for_pieces(1, count, [=, this](int64_t, int64_t begin, int64_t end) { kernels_.add(x + begin, y + begin, end - begin); });
  }

  void combine(float* hidden, const float* outputs, const float* host_weights, int n, int k, int size) override {
    for_pieces(n, size, [=, this](int64_t i, int64_t begin, int64_t end) {
      kernels_.combine(hidden + i * size, outputs + i * k * size, host_weights + i * k, k, size, begin, end);
    });
  }

 private:
  static void copy(void* to, const void* from, uint64_t bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }

  struct PlannedProduct {
    MatmulJob job;
    int64_t tiles;
    int64_t task_tiles;
    int64_t first_task;
    int64_t end_task;
  };

  PlannedProduct plan(const Product& product, int64_t first_task) const {
    const Matrix& weights = *product.weights;
    const int64_t tiles = row_tiles(weights.rows);
    const int64_t bytes = tile_bytes(weights.format, weights.columns);
    // Tiles of one task: enough to be worth the hand-over (three more tokens count as one more pass over the weights).
    const int64_t worthwhile = std::max<int64_t>(1, kTaskBytes / (bytes * ((product.n + 2) / 3)));
    const int64_t fair = tiles / (pool_.threads() * kTasksPerThread);
    const int64_t task_tiles = std::max(worthwhile, fair);
    return {{weights.format, static_cast<const uint8_t*>(weights.storage.data), weights.rows, weights.columns, product.in,
             product.in_stride, product.out, product.out_stride, product.n},
            tiles,
            task_tiles,
            first_task,
            first_task + (tiles + task_tiles - 1) / task_tiles};
  }

  float* thread_scratch(int thread) { return scratch_.data() + kThreadScratch * static_cast<size_t>(thread); }

  // Grows by doubling, so that a sequence that gets longer makes few allocations; counted in the budget.
  void reserve(DeviceBuffer& buffer, uint64_t bytes) {
    if (buffer.bytes >= bytes) return;
    const uint64_t doubled = std::max(bytes, 2 * buffer.bytes);
    arena_.release(buffer);
    try {
      buffer = arena_.allocate(doubled);
    } catch (const Error&) {
      // A budget that is nearly used up may still hold what is needed now.
      buffer = arena_.allocate(bytes);
    }
  }

  // body(row) or body(row, thread) for n rows of `elements` each.
  template <class Body>
  void for_rows(int64_t n, int64_t elements, const Body& body) {
    const int64_t rows = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, elements));
    pool_.run((n + rows - 1) / rows, [=, &body](int64_t task, int thread) {
      for (int64_t i = task * rows; i < std::min(n, (task + 1) * rows); ++i) {
        if constexpr (std::is_invocable_v<Body, int64_t, int>) {
          body(i, thread);
        } else {
          body(i);
        }
      }
    });
  }

  // body(row, begin, end) for pieces of n rows of `size` elements; small rows go several to a task.
  template <class Body>
  void for_pieces(int64_t n, int64_t size, const Body& body) {
    const int64_t pieces = std::max<int64_t>(1, (size + kTaskElements - 1) / kTaskElements);
    for_rows(n * pieces, std::min(size, kTaskElements), [=, &body](int64_t piece) {
      const int64_t begin = piece % pieces * kTaskElements;
      body(piece / pieces, begin, std::min(size, begin + kTaskElements));
    });
  }

  const KernelTable& kernels_;
  Arena arena_;
  ThreadPool pool_;
  // A few kilobytes a thread that do not grow; like stacks and code they are outside the budget.
  std::vector<float> scratch_;
  std::vector<PlannedProduct> jobs_;
  DeviceBuffer attention_scratch_;
  DeviceBuffer expansion_scratch_;
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) { return std::make_unique<cpu::CpuBackend>(options); }

}  // namespace odmoe
