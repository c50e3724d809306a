// What a backend does that does not say otherwise.
#include "odmoe/backend.h"

#include <vector>

#include "odmoe/error.h"
#include "plain_expert_memory.h"

namespace odmoe {

std::unique_ptr<ExpertMemory> Backend::allocate_experts(const ExpertMemoryShape& shape) {
  return std::make_unique<PlainExpertMemory>(*this, shape);
}

void Backend::write_coded_rows(Matrix&, int64_t, int64_t, Split, const PlaneSource*) {
  throw Error("INTERNAL", "this device decodes no blocks");
}

void Backend::multiply_swiglu(const Product* products, int count, float* gate_up) {
  std::vector<Product> both(products, products + count);
  int64_t rows = 0;
  for (Product& product : both) {
    product.out = gate_up + rows * product.weights->rows;
    product.out_stride = product.weights->rows;
    rows += product.n;
  }
  multiply(both.data(), count);
  if (count > 0) swiglu(products[0].out, gate_up, static_cast<int>(rows), static_cast<int>(products[0].out_stride));
}

}  // namespace odmoe
