#include "loaded_expert.h"

#include <algorithm>
#include <thread>

namespace odmoe::cuda_test {

ExpertMemoryShape small_experts(const Backend& backend, int slots, int64_t experts) {
  const uint64_t bytes = backend.matrix_bytes(WeightFormat::bf16, kExpertRows, kExpertColumns);
  return {slots, experts, bytes, bytes};
}

Matrix small_matrix(const DeviceBuffer& buffer) { return {WeightFormat::bf16, kExpertRows, kExpertColumns, buffer}; }

LoadedExpert::LoadedExpert(Devices& devices, const std::vector<float>& input)
    : cuda_(*devices.cuda),
      tensor_(random_tensor(devices.random, Split::bf16_e8_sm8, kExpertRows, kExpertColumns)),
      coded_(devices.cuda, tensor_, 0, CodecKind::fixed4, 8),
      exponents_(devices.cuda, tensor_.planes[0]),
      rest_(devices.cuda, tensor_.planes[1]) {
  StoredWeights reference(devices.reference, WeightFormat::bf16, kExpertRows, kExpertColumns);
  write_plain(*devices.reference, reference.matrix, 0, tensor_);
  const Floats in(devices.reference, input);
  const Floats out(devices.reference, kExpertRows);
  devices.reference->matmul(out.data(), kExpertRows, reference.matrix, in.data(), kExpertColumns, 1);
  expected_ = out.values();
}

void LoadedExpert::load(Matrix& matrix, bool coded) {
  for (const std::exception_ptr& error : load_pieces(matrix, coded, kPieces)) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

std::vector<std::exception_ptr> LoadedExpert::load_pieces(Matrix& matrix, bool coded, int pieces) {
  std::copy(tensor_.planes[0].begin(), tensor_.planes[0].end(), exponents_.bytes());
  std::copy(tensor_.planes[1].begin(), tensor_.planes[1].end(), rest_.bytes());
  std::vector<std::exception_ptr> errors(static_cast<size_t>(pieces));
  std::vector<std::thread> threads;
  for (int piece = 0; piece < pieces; ++piece) {
    threads.emplace_back([&, piece] {
      try {
        load_piece(matrix, coded, piece);
      } catch (...) {
        errors[static_cast<size_t>(piece)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  exponents_.fill(0x33);
  rest_.fill(0x77);
  return errors;
}

void LoadedExpert::load_piece(Matrix& matrix, bool coded, int piece) {
  constexpr int64_t kRows = kExpertRows / kPieces;
  const int64_t first = piece * kRows;
  std::vector<CodedBlock> blocks;
  PlaneSource sources[2];
  if (coded) {
    sources[0] = coded_.rows(first, kRows, blocks);
  } else {
    sources[0].plain = exponents_.bytes() + static_cast<uint64_t>(first) * tensor_.row_bytes(0);
  }
  sources[1].plain = rest_.bytes() + static_cast<uint64_t>(first) * tensor_.row_bytes(1);
  cuda_.write_coded_rows(matrix, first, kRows, tensor_.split, sources);
}

}  // namespace odmoe::cuda_test
