#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "cuda_bench.h"
#include "odmoe/cuda.h"
#include "odmoe/error.h"

namespace odmoe::cuda_bench {
namespace {

// Far larger than any device's cache.
constexpr uint64_t kCopyBytes = uint64_t{512} << 20;
constexpr uint64_t kSmokeCopyBytes = 1 << 16;
constexpr int kCopies = 8;
constexpr int kTurns = 5;
constexpr double kTurnSeconds = 0.05;
// Weights repeat after this number: only the cost of decoding matters.
constexpr size_t kDistinctWeights = size_t{1} << 20;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

Bench::Bench(int device, Extent extent)
    : extent_(extent),
      backend_(make_cuda_backend({.device = device})),
      speed_(make_cuda_speed(device)),
      flag_(backend_, sizeof(float)) {}

double Bench::copy_bandwidth() {
  const uint64_t bytes = smoke() ? kSmokeCopyBytes : kCopyBytes;
  return 2.0 * static_cast<double>(bytes) / speed_->copy_seconds(CudaCopy::on_device, bytes, smoke() ? 1 : kCopies);
}

void Bench::wait() {
  float value;
  backend_->copy_to_host(&value, flag_.buffer().data, sizeof value);
}

double Bench::seconds_of(const std::function<void(int64_t run)>& launch) {
  const auto timed = [&](int64_t runs) {
    wait();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t run = 0; run < runs; ++run) launch(run);
    wait();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  if (smoke()) return timed(2) / 2;
  // The first runs load kernels and raise the clock.
  int64_t runs = 4;
  timed(runs);
  double seconds = timed(runs);
  while (seconds < kTurnSeconds && runs < (int64_t{1} << 20)) {
    runs = std::max(runs + 1, static_cast<int64_t>(static_cast<double>(runs) * std::min(8.0, 1.2 * kTurnSeconds / seconds)));
    seconds = timed(runs);
  }
  return seconds / static_cast<double>(runs);
}

Bench::Measured Bench::beside_copies(double bytes, const std::function<void(int64_t run)>& launch) {
  std::vector<double> seconds;
  std::vector<double> shares;
  for (int turn = 0; turn < (smoke() ? 1 : kTurns); ++turn) {
    const double bandwidth = copy_bandwidth();
    seconds.push_back(seconds_of(launch));
    shares.push_back(bytes / seconds.back() / bandwidth);
  }
  return {median(seconds), median(shares)};
}

void Bench::reserve_planes(int64_t values) {
  if (values <= plane_values_) return;
  planes_.reset();
  planes_ = DeviceMemory(backend_, 2 * static_cast<uint64_t>(values), DeviceMemory::Kind::staging);
  plane_values_ = values;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  const size_t distinct = std::min(kDistinctWeights, static_cast<size_t>(values));
  for (size_t i = 0; i < distinct; ++i) {
    const float weight = normal(random);
    uint32_t bits;
    std::memcpy(&bits, &weight, sizeof bits);
    planes_.bytes()[i] = static_cast<uint8_t>(bits >> 23);
    planes_.bytes()[static_cast<size_t>(values) + i] = static_cast<uint8_t>((bits >> 16 & 0x7f) | (bits >> 24 & 0x80));
  }
  for (size_t i = distinct; i < static_cast<size_t>(values); i += distinct) {
    const size_t some = std::min(distinct, static_cast<size_t>(values) - i);
    std::memcpy(planes_.bytes() + i, planes_.bytes(), some);
    std::memcpy(planes_.bytes() + static_cast<size_t>(values) + i, planes_.bytes() + values, some);
  }
}

const uint8_t* Bench::exponents(int64_t values) {
  reserve_planes(values);
  return planes_.bytes();
}

const uint8_t* Bench::sign_mantissas(int64_t values) {
  reserve_planes(values);
  return planes_.bytes() + plane_values_;
}

const Bench::Slices& Bench::slices(Split split, int64_t columns) {
  Slices& slices = slices_[{split, columns}];
  if (!slices.planes[0].empty()) return slices;
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> row(static_cast<size_t>(columns));
  for (int plane = 0; plane < 2; ++plane) {
    slices.planes[plane].resize(static_cast<size_t>(Slices::kRows * plane_row_bytes(split, plane, columns)));
  }
  for (int64_t i = 0; i < Slices::kRows; ++i) {
    for (float& weight : row) weight = normal(random);
    const char* const fault =
        slice_row(split, row.data(), columns, slices.planes[0].data() + i * plane_row_bytes(split, 0, columns),
                  slices.planes[1].data() + i * plane_row_bytes(split, 1, columns));
    if (fault != nullptr) throw Error(ErrorCode::internal, fault);
  }
  return slices;
}

BenchMatrix::BenchMatrix(Bench& bench, WeightFormat format, int64_t rows, int64_t columns, SliceReading reading)
    : memory(bench.backend(), bench.backend()->matrix_bytes(format, rows, columns)) {
  matrix = {format, rows, columns, memory.buffer()};
  matrix.reading = reading;
  if (slice_bits(format) != 0) {
    write_slices(bench);
    return;
  }
  const uint8_t* const planes[] = {bench.exponents(rows * columns), bench.sign_mantissas(rows * columns), nullptr};
  if (!bench.backend()->write_rows(matrix, 0, rows, Split::bf16_e8_sm8, planes)) {
    throw Error(ErrorCode::internal, "fixed4 does not hold weights of a normal distribution");
  }
}

// The same rows again and again.
void BenchMatrix::write_slices(Bench& bench) {
  Backend& backend = *bench.backend();
  const bool both = matrix.reading == SliceReading::both;
  const int bits = slice_bits(matrix.format);
  const Split split = bits == 4 ? Split::sliced84 : bits == 3 ? Split::sliced63 : Split::sliced42;
  if (both) {
    lower = DeviceMemory(bench.backend(), backend.lower_slice_bytes(matrix.format, matrix.rows, matrix.columns));
    matrix.lower = lower.buffer();
  }
  const Bench::Slices& slices = bench.slices(split, matrix.columns);
  const uint8_t* const planes[] = {slices.planes[0].data(), both ? slices.planes[1].data() : nullptr};
  for (int64_t row = 0; row < matrix.rows; row += Bench::Slices::kRows) {
    backend.write_rows(matrix, row, std::min(Bench::Slices::kRows, matrix.rows - row), split, planes);
  }
}

double bytes_read(const Backend& backend, WeightFormat format, int64_t rows, int64_t columns, SliceReading reading) {
  // The layout has room for escapes, but hardly any is read.
  if (format == WeightFormat::fixed4) return 1.5 * static_cast<double>(rows * columns);
  const uint64_t lower = reading == SliceReading::both ? backend.lower_slice_bytes(format, rows, columns) : 0;
  return static_cast<double>(backend.matrix_bytes(format, rows, columns) + lower);
}

const char* format_name(WeightFormat format) {
  constexpr const char* kNames[] = {"bf16",  "fp16", "fp32",     "int8",     "nf4",     "fixed4",
                                    "mxfp4", "fp8",  "sliced84", "sliced63", "sliced42"};
  return kNames[static_cast<size_t>(format)];
}

}  // namespace odmoe::cuda_bench
