// The dense tensors of one layer, or of the model itself, by role.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "odmoe/dense_roles.h"
#include "odmoe/expert.h"

namespace odmoe {

struct DenseWeight {
  std::vector<StoredMatrix> matrices;  // one matrix; for the expansions of latent attention one per head
  DeviceMemory vector;
  float first = 0;  // first value of a vector, on the host
  std::atomic<bool> loaded = false;
};

// The loading thread writes it; other threads read a role once it is loaded.
class DenseWeights {
 public:
  explicit DenseWeights(const std::vector<DenseRole>& roles);

  // Null for a role that is not in this set.
  DenseWeight* find(DenseRole role);
  const DenseWeight* find(DenseRole role) const;
  bool is_loaded(DenseRole role) const;
  // The first role that has not been loaded.
  std::optional<DenseRole> missing() const;

  // Only for roles that are loaded.
  const Matrix& matrix(DenseRole role) const { return matrices(role)[0].matrix; }
  const std::vector<StoredMatrix>& matrices(DenseRole role) const { return find(role)->matrices; }
  float number(DenseRole role) const { return find(role)->first; }
  // Device memory; null for a role that is not in this set.
  const float* vector(DenseRole role) const;

 private:
  static constexpr int8_t kNone = -1;

  std::vector<DenseRole> roles_;
  std::array<int8_t, kDenseRoleCount> places_;
  std::vector<DenseWeight> weights_;
};

}  // namespace odmoe
