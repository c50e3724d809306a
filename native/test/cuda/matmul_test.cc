// Products of all formats and shapes equal the CPU's to the bit, and write only their outputs.
#include <algorithm>

#include "glu_shapes.h"
#include "shipped_weights.h"

namespace odmoe::cuda_test {
namespace {

constexpr float kCanary = 12345.5f;

struct JobShape {
  WeightFormat format;
  int64_t rows;
  int64_t columns;
  int n;
};

// A product on both devices, its outputs among canaries.
class Job {
 public:
  Job(Devices& devices, const JobShape& shape, bool gated, Weights kind)
      : n_(shape.n),
        outputs_(gated ? shape.rows / 2 : shape.rows),
        // The outputs of gated products follow one another.
        out_stride_(outputs_ + (gated ? 0 : random_between(devices.random, 0, 9))),
        in_stride_(shape.columns + random_between(devices.random, 0, 1) * random_between(devices.random, 1, 70)) {
    static constexpr Split kBf16Splits[] = {Split::none_bf16, Split::bf16_e8_sm8};
    const Split split =
        shape.format == WeightFormat::fixed4 ? kBf16Splits[devices.random() % 2] : kSplits[devices.random() % std::size(kSplits)];
    const ShippedWeights weights = random_weights(devices.random, split, shape.rows, shape.columns, kind);
    what_ = describe(shape.format, weights) + ", n " + std::to_string(n_) + (gated ? ", gated" : "");
    stored_ = store(devices, shape.format, weights);
    const std::vector<float> x = random_floats(devices.random, (n_ - 1) * in_stride_ + shape.columns);
    const std::vector<float> biases = random_floats(devices.random, shape.rows);
    cuda_biases_ = std::make_unique<Floats>(devices.cuda, biases);
    reference_biases_ = std::make_unique<Floats>(devices.reference, biases);
    const std::vector<float> canaries(static_cast<size_t>(n_ * out_stride_ + 2 * kBefore), kCanary);
    cuda_in_ = std::make_unique<Floats>(devices.cuda, x);
    reference_in_ = std::make_unique<Floats>(devices.reference, x);
    cuda_out_ = std::make_unique<Floats>(devices.cuda, canaries);
    reference_out_ = std::make_unique<Floats>(devices.reference, canaries);
  }

  bool held() const { return stored_.cuda != nullptr; }
  Product on_cuda() const {
    return {cuda_out_->data() + kBefore, out_stride_, &stored_.cuda->matrix, cuda_in_->data(), in_stride_, n_};
  }
  Product on_reference() const {
    return {reference_out_->data() + kBefore, out_stride_, &stored_.reference->matrix, reference_in_->data(), in_stride_, n_};
  }
  const float* cuda_biases() const { return cuda_biases_->data(); }
  const float* reference_biases() const { return reference_biases_->data(); }
  void check() const { expect_equal(what_, cuda_out_->values(), reference_out_->values()); }
  int64_t gate_up_floats() const { return 2 * outputs_ * n_; }

 private:
  static constexpr int64_t kBefore = 5;
  int n_;
  int64_t outputs_;
  int64_t out_stride_;
  int64_t in_stride_;
  std::string what_;
  StoredPair stored_;
  std::unique_ptr<Floats> cuda_in_, reference_in_, cuda_out_, reference_out_, cuda_biases_, reference_biases_;
};

void equal(Devices& devices, const std::vector<JobShape>& shapes, bool gated, Weights kind) {
  std::vector<std::unique_ptr<Job>> jobs;
  for (const JobShape& shape : shapes) {
    auto job = std::make_unique<Job>(devices, shape, gated, kind);
    if (job->held()) jobs.push_back(std::move(job));
  }
  const GluShape& glu = kGluShapes[devices.random() % std::size(kGluShapes)];
  std::vector<Product> on_cuda;
  std::vector<const float*> biases;
  for (const auto& job : jobs) on_cuda.push_back(job->on_cuda());
  for (const auto& job : jobs) biases.push_back(job->cuda_biases());
  for (const auto& job : jobs) {
    const Product product = job->on_reference();
    if (!gated) {
      devices.reference->multiply(&product, 1);
      continue;
    }
    const Floats gate_up(devices.reference, job->gate_up_floats());
    const float* const its_biases = job->reference_biases();
    devices.reference->multiply_glu(&product, 1, gate_up.data(), glu, glu.bias ? &its_biases : nullptr);
  }
  const auto count = static_cast<int>(on_cuda.size());
  if (gated) {
    devices.cuda->multiply_glu(on_cuda.data(), count, nullptr, glu, glu.bias ? biases.data() : nullptr);
  } else {
    devices.cuda->multiply(on_cuda.data(), count);
  }
  for (const auto& job : jobs) job->check();
}

// The kernel depends on the number of tokens; the numbers here are around the changes from one kernel to the next.
void every_format_and_batch(Devices& devices) {
  for (const WeightFormat format : kFormats) {
    for (const int n : {1, 2, 3, 4, 5, 8, 9, 16, 17, 40}) {
      for (const bool gated : {false, true}) {
        const int64_t rows = gated ? 2 * random_between(devices.random, 1, 35) : random_between(devices.random, 1, 70);
        const int64_t columns = random_between(devices.random, 32, n > 9 ? 500 : 1500);
        const Weights kind = random_between(devices.random, 0, 3) == 0 ? Weights::with_infinities_and_nan : Weights::finite;
        equal(devices, {{format, rows, columns, n}}, gated, kind);
      }
    }
  }
}

// Enough rows that a warp computes two or four of them for one token.
void many_rows(Devices& devices) {
  const int64_t processors = devices.cuda->info().threads;
  for (const WeightFormat format : kFormats) {
    for (const int64_t warps : {32, 128}) {
      const int64_t rows = processors * warps + random_between(devices.random, 4, 7);
      equal(devices, {{format, rows, random_between(devices.random, 1, 1500), 1}}, false, Weights::finite);
    }
  }
  const int64_t rows = processors * 128 + 6;
  for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::fixed4}) {
    equal(devices, {{format, rows, random_between(devices.random, 1, 1500), 1}}, true, Weights::finite);
  }
}

void several_at_once(Devices& devices) {
  for (const bool gated : {false, true}) {
    std::vector<JobShape> shapes;
    for (int i = 0; i < 40; ++i) {
      const int n = i % 3 == 0 ? random_between(devices.random, 1, 20) : 1;
      const WeightFormat format = kFormats[i % 2 == 0 ? 0 : static_cast<size_t>(i) % std::size(kFormats)];
      shapes.push_back({format, 2 * random_between(devices.random, 1, 20), random_between(devices.random, 1, 300), n});
    }
    equal(devices, shapes, gated, Weights::finite);
  }
}

// One product for every head, as in latent attention: more than fit in a launch, each with its own part of the rows.
void many_small(Devices& devices) {
  for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::int8}) {
    for (const int n : {1, 3, 20}) equal(devices, std::vector<JobShape>(150, {format, 24, 40, n}), false, Weights::finite);
  }
}

// Hidden sizes and intermediate sizes of existing models.
void usual_columns(Devices& devices) {
  for (const int64_t columns : {768, 1024, 1408, 2048, 4096}) {
    for (const WeightFormat format : kFormats) {
      const int n = random_between(devices.random, 1, 10);
      equal(devices, {{format, 6, columns, 1}, {format, 6, columns, n}}, true, Weights::finite);
    }
  }
}

}  // namespace

void test_matmul(Devices& devices) {
  every_format_and_batch(devices);
  usual_columns(devices);
  several_at_once(devices);
  many_small(devices);
  many_rows(devices);
}

}  // namespace odmoe::cuda_test
