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
  std::vector<StoredMatrix> matrices;  // one; one a head for the expansions of latent attention
  DeviceMemory vector;
  float first = 0;  // of a vector, on the host
  std::atomic<bool> loaded = false;
};

// Written by the thread that loads; read by others once the role is loaded.
class DenseWeights {
 public:
  explicit DenseWeights(const std::vector<DenseRole>& roles);

  // Null for a role that is not among them.
  DenseWeight* find(DenseRole role);
  const DenseWeight* find(DenseRole role) const;
  bool is_loaded(DenseRole role) const;
  // The first that has not been loaded.
  std::optional<DenseRole> missing() const;

  // Of roles that are loaded.
  const Matrix& matrix(DenseRole role) const { return matrices(role)[0].matrix; }
  const std::vector<StoredMatrix>& matrices(DenseRole role) const { return find(role)->matrices; }
  float number(DenseRole role) const { return find(role)->first; }
  // Device memory; null for a role that is not among them.
  const float* vector(DenseRole role) const;

 private:
  static constexpr int8_t kNone = -1;

  std::vector<DenseRole> roles_;
  std::array<int8_t, kDenseRoleCount> places_;
  std::vector<DenseWeight> weights_;
};

}  // namespace odmoe
