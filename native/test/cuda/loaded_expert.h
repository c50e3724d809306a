// Small experts for an ExpertMemory, loaded in pieces by several threads as a loader does.
#pragma once
#include <exception>
#include <memory>
#include <vector>

#include "coded_tensor.h"
#include "odmoe/expert_memory.h"

namespace odmoe::cuda_test {

inline constexpr int64_t kExpertRows = 48;
inline constexpr int64_t kExpertColumns = 96;

// Of experts that have one LoadedExpert as gate and up, another as down.
ExpertMemoryShape small_experts(const Backend& backend, int slots, int64_t experts);
// A LoadedExpert's matrix in such a buffer.
Matrix small_matrix(const DeviceBuffer& buffer);

// A matrix as a pack has it, and pinned memory that its planes are put into for each load and spoilt as soon as that may be used again.
// Nothing is allocated on the device while it is loaded: an allocation would wait for the device.
class LoadedExpert {
 public:
  static constexpr int kPieces = 3;

  // `input`: what it is multiplied with.
  LoadedExpert(Devices& devices, const std::vector<float>& input);

  // The reference's product.
  const std::vector<float>& expected() const { return expected_; }

  void load(Matrix& matrix, bool coded);
  // The first so many pieces, each by a thread of its own, all at once. What each of them threw.
  std::vector<std::exception_ptr> load_pieces(Matrix& matrix, bool coded, int pieces);

 private:
  void load_piece(Matrix& matrix, bool coded, int piece);

  Backend& cuda_;
  PlainTensor tensor_;
  CodedPlane coded_;
  Staging exponents_;
  Staging rest_;
  std::vector<float> expected_;
};

}  // namespace odmoe::cuda_test
