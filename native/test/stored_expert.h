// Shared code of the loader's tests and benchmark: experts in files, as in a pack, and loads with a wait.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../src/runtime/expert_loader.h"
#include "native_tests.h"

namespace odmoe::test {

// The destructor removes it with all its files.
class TestDirectory {
 public:
  TestDirectory();
  ~TestDirectory();
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct StoredForm {
  Split split = Split::bf16_e8_sm8;
  CodecKind codec = CodecKind::raw;  // the codec of plane 0
  int level = 1;
  int shards = 1;
  bool aligned = true;  // chunks begin at multiples of 4096
  int block_rows = 0;   // 0: as in a pack
};

// Values of an expert: gate, up, down, row-major; for a quantized split its planes one behind the other.
struct ExpertValues {
  ExpertShape shape;
  std::vector<std::vector<uint8_t>> bytes;
};

// Random bits, with every 16-bit pattern among them where there is room.
ExpertValues random_bits(const ExpertShape& shape, uint32_t seed);
// BF16 weights with the distribution of trained ones.
ExpertValues gaussian_weights(const ExpertShape& shape, uint32_t seed);

// Every code of a quantized split, and usual scales.
ExpertValues quantized_weights(const ExpertShape& shape, Split split, uint32_t seed);

// Random weights, cut into slices.
ExpertValues sliced_weights(const ExpertShape& shape, Split split, uint32_t seed);
// The FP32 weights of sliced ones, as a product with this reading reads them.
ExpertValues fp32_weights(const ExpertValues& sliced, Split split, SliceReading reading);

// Writes the expert to a file as a pack does.
ExpertSource store_expert(const std::string& path, const ExpertValues& values, const StoredForm& form);
uint64_t stored_bytes(const ExpertSource& source);

// Options for a loader of these experts, with the smallest possible staging.
LoaderOptions options_for(const std::vector<ExpertSource>& experts);

// The same matrices, written without the loader.
ExpertMatrices expected_matrices(const std::shared_ptr<Backend>& backend, const ExpertValues& values, Split split);
void check_same_matrices(const ExpertMatrices& actual, const ExpertMatrices& expected, const std::string& what);

// Waits for the end of one load.
class AwaitedLoad : public LoadListener {
 public:
  void settled(const LoadOutcome& outcome, std::exception_ptr error) noexcept override;
  // Throws the error of the load.
  LoadOutcome wait();
  bool is_settled();
  // Its number among all settled loads; a later load has a larger number.
  int turn();
  void reuse();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool settled_ = false;
  int turn_ = 0;
  LoadOutcome outcome_;
  std::exception_ptr error_;
};

}  // namespace odmoe::test
