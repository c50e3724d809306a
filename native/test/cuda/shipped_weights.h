// Matrices of random weights as they are shipped, written to both devices.
#pragma once
#include "cuda_tests.h"

namespace odmoe::cuda_test {

inline constexpr WeightFormat kFormats[] = {WeightFormat::bf16, WeightFormat::fp16, WeightFormat::fp32,
                                            WeightFormat::int8, WeightFormat::nf4,  WeightFormat::fixed4};
inline constexpr Split kSplits[] = {Split::none_bf16,    Split::none_fp16,       Split::none_fp32,       Split::bf16_e8_sm8,
                                    Split::fp16_hi8_lo8, Split::fp32_e8_sm8_r16, Split::fp16_e5_lo8_s1m2};

// Kinds of weights. All have zeros and denormals; some exponents have no code in fixed4.
enum class Weights : uint8_t { finite, with_infinities_and_nan, bf16_alone };

struct ShippedWeights {
  Split split;
  int64_t rows;
  int64_t columns;
  std::vector<uint8_t> planes[3];
};

// bf16_alone: values that fit in BF16, in any shipped type except FP16.
ShippedWeights random_weights(std::mt19937& random, Split split, int64_t rows, int64_t columns, Weights kind);

// A matrix in a device's memory.
class StoredMatrix {
 public:
  StoredMatrix(std::shared_ptr<Backend> backend, WeightFormat format, int64_t rows, int64_t columns);
  ~StoredMatrix();
  StoredMatrix(const StoredMatrix&) = delete;
  StoredMatrix& operator=(const StoredMatrix&) = delete;

  // Writes rows [first, first + count); returns the result of write_rows.
  bool write(const ShippedWeights& weights, int64_t first, int64_t count);

  Matrix matrix;

 private:
  std::shared_ptr<Backend> backend_;
};

// Both devices' matrices of these weights; null if the format cannot hold them; both devices must agree on that.
struct StoredPair {
  std::unique_ptr<StoredMatrix> cuda;
  std::unique_ptr<StoredMatrix> reference;
};
// Writes them in pieces of rows: in rising order for fixed4, in any order for other formats.
StoredPair store(Devices& devices, WeightFormat format, const ShippedWeights& weights);

std::string describe(WeightFormat format, const ShippedWeights& weights);

inline int random_between(std::mt19937& random, int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

}  // namespace odmoe::cuda_test
