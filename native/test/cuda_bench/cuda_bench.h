// Measures a CUDA device's operators as shares of its memory bandwidth, in turns with that bandwidth because clocks drift.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "odmoe/backend.h"
#include "odmoe/cuda_speed.h"
#include "odmoe/device.h"

namespace odmoe::cuda_bench {

// One line of the table.
struct Figure {
  std::string group;  // "expert"
  std::string what;   // "Mixtral-8x7B bf16, fused, 1 token"
  double value = 0;
  std::string unit;                  // "GB/s", "us"
  std::optional<double> copy_share;  // share of the copy bandwidth of the device's memory
  std::optional<double> peak_share;  // share of its FP32 peak
  std::optional<double> aim;         // aim for the share
};

// smoke: the smallest sizes and few runs, to see that everything works; its figures mean nothing.
enum class Extent : uint8_t { whole, smoke };

class Bench {
 public:
  Bench(int device, Extent extent);

  const std::shared_ptr<Backend>& backend() const { return backend_; }
  CudaSpeed& speed() { return *speed_; }
  bool smoke() const { return extent_ == Extent::smoke; }
  const std::vector<Figure>& figures() const { return figures_; }
  void add(Figure figure) { figures_.push_back(std::move(figure)); }

  // Present bytes per second that a copy on the device reads and writes.
  double copy_bandwidth();
  // Seconds of one run, the best of a few turns of many runs each; a run is a launch without a wait.
  double seconds_of(const std::function<void(int64_t run)>& launch);
  // Turns of seconds_of, each next to a copy: the medians of the seconds, and of the bytes' share of the copy bandwidth.
  struct Measured {
    double seconds = 0;
    double copy_share = 0;
  };
  Measured beside_copies(double bytes, const std::function<void(int64_t run)>& launch);

  // Weights like trained ones, as planes in staging memory, for a matrix of at most this many values.
  const uint8_t* exponents(int64_t values);
  const uint8_t* sign_mantissas(int64_t values);
  // Slices of some rows of such weights.
  struct Slices {
    static constexpr int64_t kRows = 64;
    std::vector<uint8_t> planes[2];
  };
  const Slices& slices(Split split, int64_t columns);

 private:
  void reserve_planes(int64_t values);
  void wait();

  const Extent extent_;
  std::shared_ptr<Backend> backend_;
  std::unique_ptr<CudaSpeed> speed_;
  DeviceMemory flag_;
  DeviceMemory planes_;
  int64_t plane_values_ = 0;
  std::map<std::pair<Split, int64_t>, Slices> slices_;
  std::vector<Figure> figures_;
};

// A matrix with weights in device memory. A sliced one has a lower slice only where that is read.
struct BenchMatrix {
  BenchMatrix(Bench& bench, WeightFormat format, int64_t rows, int64_t columns, SliceReading reading = SliceReading::both);
  DeviceMemory memory;
  DeviceMemory lower;
  Matrix matrix;

 private:
  void write_slices(Bench& bench);
};

// Bytes that a product must read from this matrix.
double bytes_read(const Backend& backend, WeightFormat format, int64_t rows, int64_t columns,
                  SliceReading reading = SliceReading::both);
const char* format_name(WeightFormat format);

void measure_experts(Bench& bench);
void measure_recovery(Bench& bench);
void measure_paging(Bench& bench);
void measure_copies(Bench& bench);
void measure_dense_layer(Bench& bench);
void measure_mixers(Bench& bench);
void measure_prefill(Bench& bench);

void print_table(const Bench& bench);
void print_json(const Bench& bench);

}  // namespace odmoe::cuda_bench
