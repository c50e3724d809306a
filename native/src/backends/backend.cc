// Default implementations of a backend's functions.
#include "odmoe/backend.h"

#include <string>
#include <vector>

#include "odmoe/error.h"
#include "plain_expert_memory.h"

namespace odmoe {

void check_router(const RouterWork& work, int most_experts) {
  const RouterShape& shape = work.shape;
  if (work.experts < 1 || work.experts > most_experts || work.k < 1 || work.k > work.experts) {
    throw Error(ErrorCode::model_unsupported, "a router cannot choose " + std::to_string(work.k) + " of " +
                                                  std::to_string(work.experts) + " experts; at most " +
                                                  std::to_string(most_experts) + " are supported");
  }
  if (work.host_scores != nullptr && shape.score == RouterScore::sparsemixer) {
    throw Error(ErrorCode::model_unsupported, "a sparsemixer router has no scores of all experts");
  }
  if (work.given != nullptr && shape.score == RouterScore::sparsemixer) {
    throw Error(ErrorCode::model_unsupported, "a sparsemixer router has no scores of experts that are given");
  }
  if (shape.groups < 1 || work.experts % shape.groups != 0 || shape.groups_kept < 1 || shape.groups_kept > shape.groups ||
      work.experts / shape.groups * shape.groups_kept < work.k) {
    throw Error(ErrorCode::model_unsupported,
                "a router cannot choose " + std::to_string(work.k) + " of " + std::to_string(work.experts) + " experts out of " +
                    std::to_string(shape.groups_kept) + " of " + std::to_string(shape.groups) + " groups");
  }
}

std::unique_ptr<ExpertMemory> Backend::allocate_experts(const ExpertMemoryShape& shape) {
  return std::make_unique<PlainExpertMemory>(*this, shape);
}

void ExpertMemory::exchange(int, int) { throw Error(ErrorCode::internal, "the slots of this device keep their memory"); }

void Backend::write_coded_rows(Matrix&, int64_t, int64_t, Split, const PlaneSource*) {
  throw Error(ErrorCode::internal, "this device decodes no blocks");
}

void Backend::scatter_to_device(std::span<const SpacedRows> pieces, const void* host) {
  const auto* from = static_cast<const uint8_t*>(host);
  for (const SpacedRows& rows : pieces) {
    for (int64_t i = 0; i < rows.count; i++, from += rows.row_bytes) {
      copy_to_device(static_cast<uint8_t*>(rows.first) + static_cast<uint64_t>(i) * rows.pitch_bytes, from, rows.row_bytes);
    }
  }
}

void Backend::gather_to_host(void* host, std::span<const SpacedRows> pieces) {
  auto* to = static_cast<uint8_t*>(host);
  for (const SpacedRows& rows : pieces) {
    for (int64_t i = 0; i < rows.count; i++, to += rows.row_bytes) {
      copy_to_host(to, static_cast<const uint8_t*>(rows.first) + static_cast<uint64_t>(i) * rows.pitch_bytes, rows.row_bytes);
    }
  }
}

void Backend::store_and_attend(float* out, const AttentionRow* host_rows, const float* queries, const float* keys,
                               const float* values, int64_t stride, int n, const AttentionShape& shape) {
  store_key_values(host_rows, keys, values, stride, n, shape);
  attention(out, host_rows, queries, stride, n, shape);
}

void Backend::multiply_glu(const Product* products, int count, float* gate_up, const GluShape& shape, const float* const* biases) {
  if (!shape.has_gate()) {
    multiply(products, count);
    for (const Product* product = products; product != products + count; product++) {
      glu(product->out, product->out, nullptr, product->n, static_cast<int>(product->out_stride / 2), shape);
    }
    return;
  }
  std::vector<Product> both(products, products + count);
  int64_t rows = 0;
  for (Product& product : both) {
    product.out = gate_up + rows * product.weights->rows;
    product.out_stride = product.weights->rows;
    rows += product.n;
  }
  multiply(both.data(), count);
  if (count == 0) return;
  const auto size = static_cast<int>(products[0].out_stride);
  if (biases == nullptr) return glu(products[0].out, gate_up, nullptr, static_cast<int>(rows), size, shape);
  for (int i = 0; i < count; i++) glu(products[i].out, both[static_cast<size_t>(i)].out, biases[i], products[i].n, size, shape);
}

}  // namespace odmoe
