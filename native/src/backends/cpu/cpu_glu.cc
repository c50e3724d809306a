// A GLU in the same tasks as the products that it reads: threads synchronize once, and the GLU's inputs are still in their caches.
#include "cpu_backend.h"
#include "weight_layout.h"

namespace odmoe::cpu {
namespace {

// A task takes a multiple of this number of tile pairs, so that tasks write whole cache lines of the GLU's rows.
constexpr int64_t kPairMultiple = 64 / (kTileRows * static_cast<int64_t>(sizeof(float)));

// True if every task can have tiles of gate rows and the tiles of the corresponding up rows.
bool has_pairs(const Product* products, int count) {
  return std::all_of(products, products + count,
                     [](const Product& product) { return product.weights->rows % (2 * kTileRows) == 0; });
}

}  // namespace

CpuBackend::PlannedProduct CpuBackend::plan_pairs(const Product& product, int64_t first_task, int64_t total_work) {
  PlannedProduct planned = plan(product, first_task, total_work);
  planned.tiles /= 2;
  planned.task_tiles = (planned.task_tiles / 2 + kPairMultiple - 1) / kPairMultiple * kPairMultiple;
  planned.task_tiles = std::max(planned.task_tiles, kPairMultiple);
  planned.end_task = first_task + (planned.tiles + planned.task_tiles - 1) / planned.task_tiles;
  return planned;
}

void CpuBackend::multiply_glu(const Product* products, int count, float* gate_up, const GluShape& shape,
                              const float* const* biases) {
  if (!shape.has_gate() || !has_pairs(products, count)) return Backend::multiply_glu(products, count, gate_up, shape, biases);
  int64_t rows = 0;
  int64_t tasks = 0;
  const int64_t total_work = work_of(products, count);
  products_.clear();
  gated_.clear();
  reserve_ordered(products, count);
  for (int i = 0; i < count; ++i) {
    Product both = products[i];
    if (both.n <= 0) continue;
    both.out = gate_up + rows * both.weights->rows;
    both.out_stride = both.weights->rows;
    products_.push_back(plan_pairs(both, tasks, total_work));
    gated_.push_back({products[i].out, biases == nullptr ? nullptr : biases[i]});
    tasks = products_.back().end_task;
    rows += both.n;
  }
  const uint64_t expansion = reserve_expansion(products, count);
  pool_.run(tasks, [=, &shape, this](int64_t task, int thread) {
    const size_t index = planned_of(task);
    const PlannedProduct& planned = products_[index];
    const int64_t first = (task - planned.first_task) * planned.task_tiles;
    const int64_t tiles = std::min(planned.task_tiles, planned.tiles - first);
    const MatmulScratch scratch = product_scratch(thread, expansion);
    kernels_.matmul(planned.job, first, tiles, scratch);
    kernels_.matmul(planned.job, planned.tiles + first, tiles, scratch);
    glu_rows(planned, gated_[index], shape, first * kTileRows, tiles * kTileRows);
  });
}

// Computes `count` elements from `begin` on in each of the product's rows.
void CpuBackend::glu_rows(const PlannedProduct& planned, const GatedOutput& gated, const GluShape& shape, int64_t begin,
                          int64_t count) const {
  const int64_t size = planned.tiles * kTileRows;
  const float* const gate_bias = gated.biases == nullptr ? nullptr : gated.biases + begin;
  const float* const up_bias = gated.biases == nullptr ? nullptr : gated.biases + size + begin;
  for (int i = 0; i < planned.job.n; ++i) {
    const float* const gate = planned.job.out + i * planned.job.out_stride + begin;
    kernels_.glu({gated.out + i * size + begin, gate, gate + size, gate_bias, up_bias, count, shape.activation == Activation::tanh,
                  shape.alpha, shape.limit, shape.up_offset, shape.limits_activation});
  }
}

}  // namespace odmoe::cpu
