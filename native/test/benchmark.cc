// Measures matrix products as shares of the machine's best speeds, in turns because machines drift.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>

#include "native_tests.h"
#include "odmoe/measure.h"
#include "quantized_weights.h"
#include "reference_arithmetic.h"

namespace odmoe::test {
namespace {

struct Shape {
  int64_t rows;
  int64_t columns;
};

// Enough copies of a matrix that none is still in a cache at its next turn.
class MatrixSet {
 public:
  MatrixSet(Backend& backend, WeightFormat format, Shape shape) : backend_(backend), shape_(shape) {
    const uint64_t bytes = backend.matrix_bytes(format, shape.rows, shape.columns);
    const uint64_t copies = std::max<uint64_t>(1, (uint64_t{320} << 20) / bytes);
    for (uint64_t i = 0; i < copies; ++i) {
      matrices_.push_back(std::make_unique<DeviceMatrix>(backend, format, shape.rows, shape.columns));
    }
    fill(format);
    bytes_ = bytes * copies;
  }
  double bytes() const { return static_cast<double>(bytes_); }
  double flops(int n) const {
    return 2.0 * n * static_cast<double>(shape_.rows * shape_.columns) * static_cast<double>(matrices_.size());
  }
  // Seconds of one product with every matrix in turn: the sum of each matrix's best time in a few rounds, so that other work of the
  // machine counts little.
  double seconds(float* out, const float* in, int n) {
    std::vector<double> best(matrices_.size(), 1e9);
    const size_t rounds = n < 16 ? 5 : 2;
    for (size_t call = 0; call < rounds * matrices_.size(); ++call) {
      const Matrix& matrix = matrices_[call % matrices_.size()]->matrix;
      const auto start = std::chrono::steady_clock::now();
      backend_.matmul(out, shape_.rows, matrix, in, shape_.columns, n);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      best[call % matrices_.size()] = std::min(best[call % matrices_.size()], taken.count());
    }
    if (n >= 16) return *std::min_element(best.begin(), best.end()) * static_cast<double>(best.size());
    return std::accumulate(best.begin(), best.end(), 0.0);
  }

 private:
  void fill(WeightFormat format) {
    std::vector<float> values = random_values(static_cast<size_t>(shape_.rows * shape_.columns), 1, 0.02f);
    for (float& value : values) value = reference_of_bf16(reference_to_bf16(value));
    Split split = Split::none_fp32;
    std::vector<const uint8_t*> planes = {reinterpret_cast<const uint8_t*>(values.data())};
    QuantizedWeights quantized;
    if (format == WeightFormat::mxfp4 || format == WeightFormat::fp8) {
      split = format == WeightFormat::mxfp4 ? Split::mxfp4 : Split::fp8;
      quantized = random_quantized_weights(1, split, shape_.rows, shape_.columns, Scales::usual);
      planes = quantized.at(0);
    }
    for (const auto& matrix : matrices_) {
      check(backend_.write_rows(matrix->matrix, 0, shape_.rows, split, planes.data()), "the format cannot hold the values");
    }
  }

  Backend& backend_;
  Shape shape_;
  std::vector<std::unique_ptr<DeviceMatrix>> matrices_;
  uint64_t bytes_ = 0;
};

}  // namespace

void run_benchmark(const std::string& instruction_set, int threads) {
  auto backend = open_backend(instruction_set, threads);
  const int used_threads = backend->info().threads;
  std::printf("%s, %d threads\n%-6s %-12s %4s %10s %10s %6s %12s %12s %6s\n", backend->info().instruction_set.c_str(), used_threads,
              "format", "shape", "n", "GB/s", "read GB/s", "share", "GFLOP/s", "peak", "share");
  const WeightFormat formats[] = {WeightFormat::bf16, WeightFormat::fixed4, WeightFormat::mxfp4, WeightFormat::fp8,
                                  WeightFormat::int8, WeightFormat::nf4,    WeightFormat::fp16,  WeightFormat::fp32};
  const char* const names[] = {"bf16", "fixed4", "mxfp4", "fp8", "int8", "nf4", "fp16", "fp32"};
  for (int f = 0; f < 8; ++f) {
    for (const Shape shape : {Shape{7168, 1024}, Shape{1024, 3584}, Shape{4096, 4096}}) {
      MatrixSet matrices(*backend, formats[f], shape);
      for (const int n : {1, 2, 4, 8, 16, 128}) {
        DeviceFloats in(*backend, random_values(static_cast<size_t>(n * shape.columns), 2));
        DeviceFloats out(*backend, static_cast<size_t>(n * shape.rows));
        double read = 0;
        double peak = 0;
        double seconds = 1e9;
        for (int turn = 0; turn < 2; ++turn) {
          double read_now = 0;
          double peak_now = 0;
          measure_machine(used_threads, 0.05, &read_now, &peak_now);
          read = std::max(read, read_now);
          peak = std::max(peak, peak_now);
          seconds = std::min(seconds, matrices.seconds(out.data(), in.data(), n));
        }
        const double rate = matrices.bytes() / seconds;
        const double flops = matrices.flops(n) / seconds;
        std::printf("%-6s %5lldx%-6lld %4d %10.1f %10.1f %5.0f%% %12.1f %12.1f %5.0f%%\n", names[f],
                    static_cast<long long>(shape.rows), static_cast<long long>(shape.columns), n, rate * 1e-9, read * 1e-9,
                    100 * rate / read, flops * 1e-9, peak * 1e-9, 100 * flops / peak);
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace odmoe::test
