#include "draft_rows.h"

#include <vector>

#include "mixers.h"

namespace odmoe {

void make_draft_rows(PassState& pass, std::span<const float> states) {
  Backend& backend = pass.backend();
  const DenseWeights& weights = pass.model->draft_beginning();
  const int n = pass.count();
  const int hidden = pass.hidden();
  float* const joined = pass.draft_rows.floats();
  float* const normed = pass.normed.floats();
  // A joined row is two rows of hidden values, one behind the other.
  std::vector<int32_t> token_halves(static_cast<size_t>(n));
  std::vector<int32_t> state_halves(static_cast<size_t>(n));
  for (int row = 0; row < n; row++) {
    token_halves[static_cast<size_t>(row)] = 2 * row;
    state_halves[static_cast<size_t>(row)] = 2 * row + 1;
  }
  normalize_hidden(pass, normed, pass.residual.floats(), n, weights.vector(DenseRole::token_norm), nullptr);
  backend.copy_rows(joined, token_halves.data(), normed, nullptr, n, hidden);
  backend.copy_to_device(pass.branch.floats(), states.data(), states.size_bytes());
  normalize_hidden(pass, normed, pass.branch.floats(), n, weights.vector(DenseRole::state_norm), nullptr);
  backend.copy_rows(joined, state_halves.data(), normed, nullptr, n, hidden);
  backend.matmul(pass.residual.floats(), hidden, weights.matrix(DenseRole::draft_input), joined, 2 * hidden, n);
}

}  // namespace odmoe
