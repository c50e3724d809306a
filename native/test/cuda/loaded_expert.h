// Small experts for an ExpertMemory, loaded in pieces by several threads like a loader's.
#pragma once
#include <exception>
#include <memory>
#include <vector>

#include "coded_tensor.h"
#include "odmoe/expert_memory.h"

namespace odmoe::cuda_test {

inline constexpr int64_t kExpertRows = 48;
inline constexpr int64_t kExpertColumns = 96;

// The shape of experts with one LoadedExpert as gate and up, and another as down.
ExpertMemoryShape small_experts(const Backend& backend, int slots, int64_t experts);
// A LoadedExpert's matrix in such a buffer.
Matrix small_matrix(const DeviceBuffer& buffer);

// A matrix as a pack stores it, and pinned memory for its planes: each load copies the planes there, and overwrites them with noise
// as soon as the memory may be reused. A load allocates nothing on the device, because an allocation would wait for the device.
class LoadedExpert {
 public:
  static constexpr int kPieces = 3;

  // `input`: the vector for products with the matrix.
  LoadedExpert(Devices& devices, const std::vector<float>& input);

  // The reference's product.
  const std::vector<float>& expected() const { return expected_; }

  void load(Matrix& matrix, bool coded);
  // Loads the first `pieces` pieces, each on its own thread, all at once. Returns the error of each.
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
