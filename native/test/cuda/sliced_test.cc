// Products straight from slices, of all pairs and readings, equal the CPU's to the bit; and the memory that slices take.
#include <algorithm>
#include <cmath>

#include "coded_tensor.h"
#include "glu_shapes.h"
#include "odmoe/expert_memory.h"
#include "shipped_weights.h"

namespace odmoe::cuda_test {
namespace {

struct SlicePair {
  const char* name;
  Split split;
  WeightFormat format;
};
constexpr SlicePair kPairs[] = {{"(8,4)", Split::sliced84, WeightFormat::sliced84},
                                {"(6,3)", Split::sliced63, WeightFormat::sliced63},
                                {"(4,2)", Split::sliced42, WeightFormat::sliced42}};
constexpr SliceReading kReadings[] = {SliceReading::both, SliceReading::upper_centred, SliceReading::upper_amat};
constexpr const char* kReadingNames[] = {"both", "centred", "amat"};

// Groups of usual weights, and some that are all zero, positive, negative, tiny, large, or have one value.
std::vector<float> random_row(std::mt19937& random, int64_t columns) {
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> row;
  int kind = 0;
  for (int64_t i = 0; i < columns; ++i) {
    if (i % kSliceGroup == 0) kind = random_between(random, 0, 11);
    const float x = normal(random);
    constexpr float kFactors[] = {0.0f, 1e-6f, 1e5f, 1e-12f};
    row.push_back(kind < 4 ? x * kFactors[kind] : kind == 4 ? std::fabs(x) : kind == 5 ? -std::fabs(x) : kind == 6 ? 0.25f : x);
  }
  return row;
}

ShippedWeights random_slices(std::mt19937& random, Split split, int64_t rows, int64_t columns) {
  ShippedWeights weights{split, rows, columns, {}};
  for (int64_t r = 0; r < rows; ++r) {
    const std::vector<float> row = random_row(random, columns);
    uint8_t* to[2];
    for (int plane = 0; plane < 2; ++plane) {
      const auto bytes = static_cast<size_t>(plane_row_bytes(split, plane, columns));
      weights.planes[plane].resize(weights.planes[plane].size() + bytes);
      to[plane] = weights.planes[plane].data() + static_cast<size_t>(r) * bytes;
    }
    const char* const fault = slice_row(split, row.data(), columns, to[0], to[1]);
    expect(fault == nullptr, "weights cannot be sliced");
  }
  return weights;
}

enum class Slices : uint8_t { upper, lower, both };

bool write(Backend& backend, Matrix& matrix, const ShippedWeights& weights, int64_t first, int64_t count, Slices slices) {
  const auto plane = [&](int number, Slices left_out) {
    const uint8_t* const from = weights.planes[number].data() + first * plane_row_bytes(weights.split, number, weights.columns);
    return slices == left_out ? nullptr : from;
  };
  const uint8_t* const planes[] = {plane(0, Slices::lower), plane(1, Slices::upper)};
  return backend.write_rows(matrix, first, count, weights.split, planes);
}

// Pieces of rows, of which each begins anywhere in a plane, from the last to the first.
void write_in_pieces(Backend& backend, Matrix& matrix, const ShippedWeights& weights, int piece, Slices slices) {
  for (int64_t first = (matrix.rows - 1) / piece * piece; first >= 0; first -= piece) {
    const int64_t count = std::min<int64_t>(piece, matrix.rows - first);
    expect(write(backend, matrix, weights, first, count, slices), "slices are not held");
  }
}

// A matrix with memory for both slices. It has a lower slice only once add_lower() has given it one.
class SlicedMatrix {
 public:
  SlicedMatrix(std::shared_ptr<Backend> backend, WeightFormat format, const ShippedWeights& weights)
      : matrix{format, weights.rows, weights.columns, {}}, backend_(std::move(backend)) {
    matrix.storage = backend_->allocate(backend_->matrix_bytes(format, weights.rows, weights.columns));
  }
  ~SlicedMatrix() {
    backend_->release(matrix.storage);
    backend_->release(matrix.lower);
  }
  SlicedMatrix(const SlicedMatrix&) = delete;
  SlicedMatrix& operator=(const SlicedMatrix&) = delete;

  void add_lower() { matrix.lower = backend_->allocate(backend_->lower_slice_bytes(matrix.format, matrix.rows, matrix.columns)); }

  Matrix matrix;

 private:
  std::shared_ptr<Backend> backend_;
};

class SlicedPair {
 public:
  SlicedPair(Devices& devices, const SlicePair& pair, int64_t rows, int64_t columns)
      : name_(pair.name),
        devices_(devices),
        weights_(random_slices(devices.random, pair.split, rows, columns)),
        cuda_(devices.cuda, pair.format, weights_),
        reference_(devices.reference, pair.format, weights_) {
    write_all(Slices::upper);
  }

  void add_lower() {
    cuda_.add_lower();
    reference_.add_lower();
    write_all(Slices::lower);
  }
  std::string describe(SliceReading reading, int n) const {
    return std::string(name_) + " " + kReadingNames[static_cast<size_t>(reading)] + ", " + std::to_string(weights_.rows) + " x " +
           std::to_string(weights_.columns) + ", n " + std::to_string(n);
  }
  const Matrix& cuda(SliceReading reading) {
    cuda_.matrix.reading = reading;
    return cuda_.matrix;
  }
  const Matrix& reference(SliceReading reading) {
    reference_.matrix.reading = reading;
    return reference_.matrix;
  }

 private:
  void write_all(Slices slices) {
    const int piece = random_between(devices_.random, 1, static_cast<int>(weights_.rows));
    write_in_pieces(*devices_.cuda, cuda_.matrix, weights_, piece, slices);
    write_in_pieces(*devices_.reference, reference_.matrix, weights_, piece, slices);
  }

  const char* name_;
  Devices& devices_;
  ShippedWeights weights_;
  SlicedMatrix cuda_;
  SlicedMatrix reference_;
};

std::vector<float> product(const std::shared_ptr<Backend>& backend, const Matrix& matrix, const std::vector<float>& x, int n) {
  const Floats in(backend, x);
  const Floats out(backend, n * matrix.rows);
  backend->matmul(out.data(), matrix.rows, matrix, in.data(), matrix.columns, n);
  return out.values();
}

void equal_products(Devices& devices, SlicedPair& pair, SliceReading reading, int n) {
  const Matrix& matrix = pair.cuda(reading);
  const std::vector<float> x = random_floats(devices.random, n * matrix.columns);
  expect_equal(pair.describe(reading, n), product(devices.cuda, matrix, x, n),
               product(devices.reference, pair.reference(reading), x, n));
}

// The upper slice is read alone before the lower one is there.
void equal_readings(Devices& devices, SlicedPair& pair, const std::vector<int>& batches) {
  for (const SliceReading reading : {SliceReading::upper_centred, SliceReading::upper_amat, SliceReading::both}) {
    if (reading == SliceReading::both) pair.add_lower();
    for (const int n : batches) equal_products(devices, pair, reading, n);
  }
}

void every_batch(Devices& devices, const SlicePair& pair) {
  for (const int n : {1, 2, 3, 4, 5, 8, 9, 16, 17, 40}) {
    SlicedPair matrix(devices, pair, random_between(devices.random, 1, 70), random_between(devices.random, 32, n > 9 ? 500 : 1500));
    equal_readings(devices, matrix, {n});
  }
  // Enough rows that a warp computes two or four of them.
  const int processors = devices.cuda->info().threads;
  for (const int warps : {32, 128}) {
    SlicedPair matrix(devices, pair, processors * warps + random_between(devices.random, 4, 7),
                      random_between(devices.random, 1, 700));
    equal_readings(devices, matrix, {1});
  }
}

// Every number of steps up to two main pieces, with a full and with an incomplete last step; and columns of existing models.
void every_number_of_steps(Devices& devices, const SlicePair& pair) {
  for (int steps = 1; steps <= 70; ++steps) {
    const int missing = steps % 2 == 0 ? 0 : random_between(devices.random, 1, 31);
    SlicedPair matrix(devices, pair, 5, steps * 32 - missing);
    equal_readings(devices, matrix, {1, steps % 3 == 0 ? 11 : 2});
  }
  for (const int64_t columns : {768, 1408, 1440, 2048, 4096}) {
    SlicedPair matrix(devices, pair, 6, columns);
    equal_readings(devices, matrix, {1, random_between(devices.random, 2, 20)});
  }
}

// Products of one launch, of several pairs, readings and numbers of tokens; plain ones and GLUs.
void several_at_once(Devices& devices, bool gated) {
  struct Job {
    std::unique_ptr<SlicedPair> pair;
    SliceReading reading;
    int n;
    std::unique_ptr<Floats> in, out, biases;
    std::vector<float> expected;
  };
  const GluShape& glu = kGluShapes[devices.random() % std::size(kGluShapes)];
  std::vector<Job> jobs(24);
  std::vector<Product> products;
  std::vector<const float*> all_biases;
  for (size_t i = 0; i < jobs.size(); ++i) {
    Job& job = jobs[i];
    job.pair = std::make_unique<SlicedPair>(devices, kPairs[i % 2 == 0 ? 0 : i % 3], 2 * random_between(devices.random, 1, 20),
                                            random_between(devices.random, 1, 300));
    job.reading = kReadings[i / 2 % 3];
    if (job.reading == SliceReading::both) job.pair->add_lower();
    job.n = i % 3 == 0 ? random_between(devices.random, 1, 20) : 1;
    const Matrix& matrix = job.pair->cuda(job.reading);
    const int64_t outputs = gated ? matrix.rows / 2 : matrix.rows;
    const std::vector<float> x = random_floats(devices.random, job.n * matrix.columns);
    const std::vector<float> biases = random_floats(devices.random, matrix.rows);
    job.in = std::make_unique<Floats>(devices.cuda, x);
    job.out = std::make_unique<Floats>(devices.cuda, job.n * outputs);
    job.biases = std::make_unique<Floats>(devices.cuda, biases);
    products.push_back({job.out->data(), outputs, &matrix, job.in->data(), matrix.columns, job.n});
    all_biases.push_back(job.biases->data());
    const Floats in(devices.reference, x), out(devices.reference, job.n * outputs), its_biases(devices.reference, biases),
        gate_up(devices.reference, job.n * matrix.rows);
    const Product expected{out.data(), outputs, &job.pair->reference(job.reading), in.data(), matrix.columns, job.n};
    const float* const one = its_biases.data();
    if (gated) devices.reference->multiply_glu(&expected, 1, gate_up.data(), glu, glu.bias ? &one : nullptr);
    if (!gated) devices.reference->multiply(&expected, 1);
    job.expected = out.values();
  }
  const auto count = static_cast<int>(products.size());
  if (gated) devices.cuda->multiply_glu(products.data(), count, nullptr, glu, glu.bias ? all_biases.data() : nullptr);
  if (!gated) devices.cuda->multiply(products.data(), count);
  for (const Job& job : jobs) {
    expect_equal(job.pair->describe(job.reading, job.n) + (gated ? ", gated" : ""), job.out->values(), job.expected);
  }
}

// Both slices of an expert in one place of an expert memory; the lower one comes to an expert that is in use.
void fill_an_expert_slot(Devices& devices, const SlicePair& pair) {
  constexpr int64_t kRows = 48;
  constexpr int64_t kColumns = 200;
  const ShippedWeights weights = random_slices(devices.random, pair.split, kRows, kColumns);
  Backend& cuda = *devices.cuda;
  const uint64_t upper = (cuda.matrix_bytes(pair.format, kRows, kColumns) + 63) / 64 * 64;
  const uint64_t lower = cuda.lower_slice_bytes(pair.format, kRows, kColumns);
  const auto memory = cuda.allocate_experts({2, 6, upper + lower, upper});
  const std::vector<float> x = random_floats(devices.random, kColumns);
  SlicedMatrix reference(devices.reference, pair.format, weights);
  reference.add_lower();
  expect(write(*devices.reference, reference.matrix, weights, 0, kRows, Slices::both), "slices are not held");
  // The planes lie in pinned memory, from which they are read in place where the device can.
  Staging staged[] = {Staging(devices.cuda, weights.planes[0]), Staging(devices.cuda, weights.planes[1])};
  // No allocation comes between a write and the product, because an allocation waits for the device.
  const Floats in(devices.cuda, x), out(devices.cuda, kRows);
  const ExpertPages pages = memory->begin_load(1, 4);
  Matrix matrix{pair.format, kRows, kColumns, {pages.gate_up.data, upper}};
  matrix.lower = {static_cast<uint8_t*>(pages.gate_up.data) + upper, lower};
  for (const SliceReading reading : {SliceReading::upper_centred, SliceReading::both}) {
    const bool both = reading == SliceReading::both;
    PlaneSource sources[2];
    sources[both ? 1 : 0].plain = staged[both ? 1 : 0].bytes();
    cuda.write_coded_rows(matrix, 0, kRows, pair.split, sources);
    if (!both) memory->end_load(1, true);
    matrix.reading = reference.matrix.reading = reading;
    memory->begin_read(1);
    cuda.matmul(out.data(), kRows, matrix, in.data(), kColumns, 1);
    memory->end_read(1);
    expect_equal(std::string(pair.name) + " in an expert's slot", out.values(), product(devices.reference, reference.matrix, x, 1));
  }
}

void holds_what_was_sliced_so(Devices& devices, const SlicePair& pair) {
  const ShippedWeights weights = random_slices(devices.random, pair.split, 4, 64);
  SlicedMatrix matrix(devices.cuda, pair.format, weights);
  for (const SlicePair& other : kPairs) {
    const ShippedWeights sliced = random_slices(devices.random, other.split, 4, 64);
    expect(write(*devices.cuda, matrix.matrix, sliced, 0, 4, Slices::upper) == (other.split == pair.split),
           std::string(pair.name) + ": slices of " + other.name);
    StoredMatrix plain(devices.cuda, WeightFormat::bf16, 4, 64);
    expect(!plain.write(sliced, 0, 4), "slices were written as BF16");
  }
  const ShippedWeights values = random_weights(devices.random, Split::none_bf16, 4, 64, Weights::finite);
  const uint8_t* const planes[] = {values.planes[0].data(), nullptr, nullptr};
  expect(!devices.cuda->write_rows(matrix.matrix, 0, 4, Split::none_bf16, planes), "BF16 weights were written as slices");
}

void takes_the_bytes_that_are_allowed(Devices& devices) {
  for (const int64_t columns : {512, 768, 1024, 1408, 1440, 2048, 4096, 14336}) {
    const double weights = 512.0 * static_cast<double>(columns);
    const auto upper = static_cast<double>(devices.cuda->matrix_bytes(WeightFormat::sliced84, 512, columns));
    const auto lower = static_cast<double>(devices.cuda->lower_slice_bytes(WeightFormat::sliced84, 512, columns));
    expect(upper * 8 / weights <= 4.80, "an upper slice takes more than 4.80 bits a weight");
    expect((upper + lower) * 8 / weights <= 8.85, "both slices take more than 8.85 bits a weight");
  }
}

void refuses_to_read_an_absent_slice(Devices& devices) {
  SlicedPair pair(devices, kPairs[0], 4, 64);
  bool refused = false;
  try {
    product(devices.cuda, pair.cuda(SliceReading::both), random_floats(devices.random, 64), 1);
  } catch (const std::exception&) {
    refused = true;
  }
  expect(refused, "a lower slice was read that is not there");
}

}  // namespace

void test_sliced(Devices& devices) {
  for (const SlicePair& pair : kPairs) {
    every_batch(devices, pair);
    every_number_of_steps(devices, pair);
    for (int round = 0; round < 10; ++round) fill_an_expert_slot(devices, pair);
    holds_what_was_sliced_so(devices, pair);
  }
  several_at_once(devices, false);
  several_at_once(devices, true);
  takes_the_bytes_that_are_allowed(devices);
  refuses_to_read_an_absent_slice(devices);
}

}  // namespace odmoe::cuda_test
