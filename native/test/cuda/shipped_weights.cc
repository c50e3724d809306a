#include "shipped_weights.h"

#include <algorithm>

namespace odmoe::cuda_test {
namespace {

const char* name_of(WeightFormat format) {
  constexpr const char* kNames[] = {"bf16", "fp16", "fp32", "int8", "nf4", "fixed4", "mxfp4", "fp8"};
  return kNames[static_cast<size_t>(format)];
}

const char* name_of(Split split) {
  constexpr const char* kNames[] = {"none_bf16",       "none_fp16",        "none_fp32", "bf16_e8_sm8", "fp16_hi8_lo8",
                                    "fp32_e8_sm8_r16", "fp16_e5_lo8_s1m2", "mxfp4",     "fp8"};
  return kNames[static_cast<size_t>(split)];
}

struct ValueBits {
  int exponent;
  int mantissa;
  int bias;
};

ValueBits bits_of(Split split) {
  if (split == Split::none_bf16 || split == Split::bf16_e8_sm8) return {8, 7, 127};
  if (split == Split::none_fp32 || split == Split::fp32_e8_sm8_r16) return {8, 23, 127};
  return {5, 10, 15};
}

// A value, mostly with a magnitude from 2^-8 to 1.
uint32_t random_value(std::mt19937& random, const ValueBits& bits, Weights kind) {
  uint32_t mantissa = random() & ((1u << bits.mantissa) - 1);
  if (kind == Weights::bf16_alone) mantissa &= ~((1u << (bits.mantissa - 7)) - 1);
  auto exponent = static_cast<uint32_t>(bits.bias - random_between(random, 1, 8));
  const int drawn = random_between(random, 0, 2047);
  if (drawn < 20) mantissa = 0;
  if (drawn < 40) exponent = 0;
  if (drawn >= 40 && drawn < 44) exponent = static_cast<uint32_t>(random_between(random, 1, bits.bias - 9));
  if (kind == Weights::with_infinities_and_nan && drawn == 2000) mantissa = 0;
  if (kind == Weights::with_infinities_and_nan && (drawn == 2000 || drawn == 2001)) exponent = (1u << bits.exponent) - 1;
  return (random() & 1u) << (bits.exponent + bits.mantissa) | exponent << bits.mantissa | mantissa;
}

void append(std::vector<uint8_t>& plane, uint32_t bits, int bytes) {
  for (int i = 0; i < bytes; ++i) plane.push_back(static_cast<uint8_t>(bits >> (8 * i)));
}

// The planes of docs/pack-format.md, "Planes".
void append_split(ShippedWeights& weights, uint32_t bits) {
  std::vector<uint8_t>* const planes = weights.planes;
  switch (weights.split) {
    case Split::none_bf16:
    case Split::none_fp16: return append(planes[0], bits, 2);
    case Split::none_fp32: return append(planes[0], bits, 4);
    case Split::bf16_e8_sm8: append(planes[0], bits >> 7, 1); return append(planes[1], (bits >> 8 & 0x80u) | (bits & 0x7fu), 1);
    case Split::fp16_hi8_lo8: append(planes[0], bits >> 8, 1); return append(planes[1], bits, 1);
    case Split::fp32_e8_sm8_r16:
      append(planes[0], bits >> 23, 1);
      append(planes[1], (bits >> 24 & 0x80u) | (bits >> 16 & 0x7fu), 1);
      return append(planes[2], bits, 2);
    case Split::fp16_e5_lo8_s1m2:
      append(planes[0], bits >> 10 & 0x1fu, 1);
      append(planes[1], bits, 1);
      return append(planes[2], (bits >> 13 & 4u) | (bits >> 8 & 3u), 1);
    default: throw Failure("weights that are shipped quantized are not made of values");
  }
}

// Pieces of rows, in a random order where that is allowed.
std::vector<std::pair<int64_t, int64_t>> random_pieces(std::mt19937& random, int64_t rows, bool in_order) {
  std::vector<std::pair<int64_t, int64_t>> pieces;
  for (int64_t first = 0; first < rows;) {
    const int64_t count = std::min<int64_t>(rows - first, random_between(random, 1, static_cast<int>(rows)));
    pieces.emplace_back(first, count);
    first += count;
  }
  if (!in_order) std::shuffle(pieces.begin(), pieces.end(), random);
  return pieces;
}

}  // namespace

ShippedWeights random_weights(std::mt19937& random, Split split, int64_t rows, int64_t columns, Weights kind) {
  ShippedWeights weights{split, rows, columns, {}};
  for (int64_t i = 0; i < rows * columns; ++i) append_split(weights, random_value(random, bits_of(split), kind));
  return weights;
}

StoredMatrix::StoredMatrix(std::shared_ptr<Backend> backend, WeightFormat format, int64_t rows, int64_t columns)
    : matrix{format, rows, columns, {}}, backend_(std::move(backend)) {
  matrix.storage = backend_->allocate(backend_->matrix_bytes(format, rows, columns));
}

StoredMatrix::~StoredMatrix() { backend_->release(matrix.storage); }

bool StoredMatrix::write(const ShippedWeights& weights, int64_t first, int64_t count) {
  const uint8_t* planes[3] = {};
  for (int plane = 0; plane < plane_count(weights.split); ++plane) {
    planes[plane] = weights.planes[plane].data() + first * plane_row_bytes(weights.split, plane, weights.columns);
  }
  return backend_->write_rows(matrix, first, count, weights.split, planes);
}

StoredPair store(Devices& devices, WeightFormat format, const ShippedWeights& weights) {
  StoredPair pair;
  pair.cuda = std::make_unique<StoredMatrix>(devices.cuda, format, weights.rows, weights.columns);
  pair.reference = std::make_unique<StoredMatrix>(devices.reference, format, weights.rows, weights.columns);
  bool held = true;
  for (const auto& [first, count] : random_pieces(devices.random, weights.rows, format == WeightFormat::fixed4)) {
    held = pair.reference->write(weights, first, count);
    expect(pair.cuda->write(weights, first, count) == held,
           describe(format, weights) + ": the devices differ on whether the format holds it");
    if (!held) return {};
  }
  return pair;
}

std::string describe(WeightFormat format, const ShippedWeights& weights) {
  return std::string(name_of(format)) + " from " + name_of(weights.split) + ", " + std::to_string(weights.rows) + " x " +
         std::to_string(weights.columns);
}

}  // namespace odmoe::cuda_test
