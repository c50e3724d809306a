#include "odmoe/dense_weights.h"

namespace odmoe {

DenseWeights::DenseWeights(const std::vector<DenseRole>& roles) : roles_(roles), weights_(roles.size()) {
  places_.fill(kNone);
  for (size_t i = 0; i < roles.size(); i++) places_[static_cast<size_t>(roles[i])] = static_cast<int8_t>(i);
}

DenseWeight* DenseWeights::find(DenseRole role) {
  const int8_t place = places_[static_cast<size_t>(role)];
  return place == kNone ? nullptr : &weights_[static_cast<size_t>(place)];
}

const DenseWeight* DenseWeights::find(DenseRole role) const {
  const int8_t place = places_[static_cast<size_t>(role)];
  return place == kNone ? nullptr : &weights_[static_cast<size_t>(place)];
}

bool DenseWeights::is_loaded(DenseRole role) const {
  const DenseWeight* const weight = find(role);
  return weight != nullptr && weight->loaded.load(std::memory_order_acquire);
}

std::optional<DenseRole> DenseWeights::missing() const {
  for (size_t i = 0; i < roles_.size(); i++) {
    if (!weights_[i].loaded.load(std::memory_order_acquire)) return roles_[i];
  }
  return std::nullopt;
}

const float* DenseWeights::vector(DenseRole role) const {
  const DenseWeight* const weight = find(role);
  return weight == nullptr ? nullptr : weight->vector.floats();
}

}  // namespace odmoe
