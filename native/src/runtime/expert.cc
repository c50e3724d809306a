#include "odmoe/expert.h"

#include <algorithm>
#include <vector>

#include "odmoe/error.h"

namespace odmoe {
namespace {

// Backends interleave rows in groups; pieces of whole groups avoid half-filled groups.
constexpr int64_t kPieceRowMultiple = 16;

int64_t rows_per_piece(const TensorSource& source, uint64_t staging) {
  int64_t rows = std::max<int64_t>(1, static_cast<int64_t>(staging / staging_bytes(source.split, 1, source.columns)));
  while (rows > 1 && staging_bytes(source.split, rows, source.columns) > staging) rows--;
  return rows > kPieceRowMultiple ? rows / kPieceRowMultiple * kPieceRowMultiple : rows;
}

// Only fixed4 may be unable to hold values; every other format is already the exact one, or can hold any value.
void check_may_fall_back(WeightFormat format) {
  if (format != WeightFormat::fixed4) throw Error(ErrorCode::internal, "the device keeps no matrices of this format");
}

// Reads the next `rows` rows of a tensor into a matrix, from first_row on, piece by piece through the staging memory. False if the
// matrix's format cannot hold them.
bool load_rows(Backend& backend, Matrix& matrix, int64_t first_row, int64_t rows, const TensorSource& source, TensorReader& reader,
               const DeviceMemory& staging) {
  const int64_t piece_rows = rows_per_piece(source, staging.buffer().bytes);
  const uint8_t* planes[kMaxPlanes] = {};
  for (int64_t done = 0; done < rows;) {
    const int64_t piece = std::min(piece_rows, rows - done);
    reader.read_rows(piece, staging.bytes(), planes);
    if (!backend.write_rows(matrix, first_row + done, piece, source.split, planes)) return false;
    done += piece;
  }
  return true;
}

// The format in which these sources are held where `wanted` is asked for. fixed4 is for values, and only grouped codes can have
// their columns in another order.
WeightFormat held_format(WeightFormat wanted, std::span<const TensorSource* const> sources) {
  const auto needs_own = [&](const TensorSource* one) {
    const bool ordered = is_grouped(one->split) && grouped_codes(one->split).order_bytes > 0;
    return ordered || (wanted == WeightFormat::fixed4 && is_blocks(one->split));
  };
  const bool own = wanted == WeightFormat::shipped || std::any_of(sources.begin(), sources.end(), needs_own);
  return own ? exact_format(sources) : wanted;
}

}  // namespace

StoredMatrix::StoredMatrix(const std::shared_ptr<Backend>& backend, WeightFormat format, int64_t rows, int64_t columns,
                           SliceReading reading)
    : memory(backend, backend->matrix_bytes(format, rows, columns)) {
  if (slice_bits(format) != 0 && reading == SliceReading::both) {
    lower_memory = DeviceMemory(backend, backend->lower_slice_bytes(format, rows, columns));
  }
  matrix = {format, rows, columns, memory.buffer(), lower_memory.buffer(), reading};
}

ExpertMatrices::ExpertMatrices(const std::shared_ptr<Backend>& backend, const ExpertShape& shape, SliceReading reading)
    : gate_up(backend, shape.format, 2 * shape.glu.gate_rows(), shape.hidden_size, reading),
      down(backend, shape.format, shape.hidden_size, shape.glu.intermediate_size, reading) {}

ExpertActivations::ExpertActivations(const std::shared_ptr<Backend>& backend, const ExpertShape& shape, int max_rows)
    : rows(std::min(max_rows, kExpertTileRows)),
      input(backend, float_bytes(rows * shape.hidden_size)),
      gate_up(backend, float_bytes(rows * 2 * shape.glu.gate_rows())),
      activation(backend, float_bytes(rows * shape.glu.intermediate_size)),
      output(backend, float_bytes(rows * shape.hidden_size)) {}

bool shares_matrix(const ExpertFormats& formats, int64_t gate_rows) {
  if (formats.gate != formats.up) return false;
  if (is_grouped(formats.gate) && grouped_codes(formats.gate).order_bytes > 0) return false;
  return formats.gate != WeightFormat::fp8_tile || gate_rows % kTileScaleRows == 0;
}

ExpertFormats exact_formats(const ExpertSource& source) {
  const auto format_of = [](const TensorSource& tensor) {
    const TensorSource* const one[] = {&tensor};
    return exact_format(one);
  };
  return {format_of(source.gate), format_of(source.up), format_of(source.down)};
}

ExpertFormats slot_formats(const ExpertShape& shape, const ExpertSource& source) {
  if (shape.format != WeightFormat::shipped) return {shape.format, shape.format, shape.format};
  const ExpertFormats formats = exact_formats(source);
  if (std::find(shape.shipped.begin(), shape.shipped.end(), formats) != shape.shipped.end()) return formats;
  throw Error(ErrorCode::internal, "an expert has formats that the slots were not made for");
}

uint64_t up_offset(const Backend& backend, const ExpertFormats& formats, const ExpertShape& shape) {
  constexpr uint64_t kAlignment = 256;
  const uint64_t bytes = backend.matrix_bytes(formats.gate, shape.glu.gate_rows(), shape.hidden_size);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

uint64_t gate_up_bytes(const Backend& backend, const ExpertShape& shape) {
  const int64_t rows = shape.glu.gate_rows();
  uint64_t most = 0;
  for (const ExpertFormats& formats : shape.formats()) {
    const uint64_t bytes = shares_matrix(formats, rows)
                               ? backend.matrix_bytes(formats.gate, 2 * rows, shape.hidden_size)
                               : up_offset(backend, formats, shape) + backend.matrix_bytes(formats.up, rows, shape.hidden_size);
    most = std::max(most, bytes);
  }
  return most;
}

uint64_t down_bytes(const Backend& backend, const ExpertShape& shape) {
  uint64_t most = 0;
  for (const ExpertFormats& formats : shape.formats()) {
    most = std::max(most, backend.matrix_bytes(formats.down, shape.hidden_size, shape.glu.intermediate_size));
  }
  return most;
}

// Gate and up rows of experts whose gate and up are matrices of their own, and the GLU of both.
static void multiply_apart(Backend& backend, const GluShape& glu, std::span<const ExpertRows> experts,
                           std::span<const Product> gates, std::span<const float* const> biases, float* gate_up) {
  std::vector<Product> products;
  std::vector<float*> pairs;
  float* rows = gate_up;
  for (size_t i = 0; i < experts.size(); i++) {
    const ExpertMatrices& expert = *experts[i].expert;
    const int64_t size = glu.has_gate() ? gates[i].out_stride : gates[i].out_stride / 2;
    Product product = gates[i];
    product.out = rows;
    product.out_stride = 2 * size;
    products.push_back(product);
    if (expert.has_up()) {
      product.out = rows + size;
      product.weights = &expert.up.matrix;
      products.push_back(product);
    }
    pairs.push_back(rows);
    rows += 2 * size * gates[i].n;
  }
  backend.multiply(products.data(), static_cast<int>(products.size()));
  for (size_t i = 0; i < experts.size(); i++) {
    const auto size = static_cast<int>(products[0].out_stride / 2);
    backend.glu(gates[i].out, pairs[i], glu.bias ? biases[i] : nullptr, gates[i].n, size, glu);
  }
}

void run_experts(Backend& backend, const GluShape& glu, std::span<const ExpertRows> experts, const ExpertActivations& activations,
                 float* out, const float* in) {
  const int64_t hidden = experts[0].expert->down.matrix.rows;
  const int64_t intermediate = experts[0].expert->down.matrix.columns;
  std::vector<Product> products(experts.size());
  std::vector<const float*> biases(experts.size());
  int64_t row = 0;
  for (size_t i = 0; i < experts.size(); i++) {
    products[i] = {activations.activation.floats() + row * intermediate,
                   intermediate,
                   &experts[i].expert->gate_up.matrix,
                   in + row * hidden,
                   hidden,
                   experts[i].rows};
    biases[i] = experts[i].expert->biases;
    row += experts[i].rows;
  }
  const bool apart = std::any_of(experts.begin(), experts.end(), [](const ExpertRows& one) { return one.expert->has_up(); });
  if (apart) {
    multiply_apart(backend, glu, experts, products, biases, activations.gate_up.floats());
  } else {
    backend.multiply_glu(products.data(), static_cast<int>(products.size()), activations.gate_up.floats(), glu,
                         glu.bias ? biases.data() : nullptr);
  }
  row = 0;
  for (size_t i = 0; i < experts.size(); i++) {
    products[i] = {
        out + row * hidden, hidden,         &experts[i].expert->down.matrix, activations.activation.floats() + row * intermediate,
        intermediate,       experts[i].rows};
    row += experts[i].rows;
  }
  backend.multiply(products.data(), static_cast<int>(products.size()));
  for (size_t i = 0; glu.bias && i < experts.size(); i++) {
    const Vectors outputs{products[i].out, hidden, 0, experts[i].rows, 1, static_cast<int>(hidden)};
    backend.add_bias(outputs, biases[i] + 2 * intermediate);
  }
}

uint64_t staging_size(int64_t rows, int64_t columns) {
  // The widest values, four bytes in three planes, so that any source of this size fits.
  const uint64_t whole = staging_bytes(Split::fp32_e8_sm8_r16, rows, columns);
  const uint64_t one_row = staging_bytes(Split::fp32_e8_sm8_r16, 1, columns);
  return std::max(std::min(whole, kStagingBytes), one_row);
}

WeightFormat exact_format(std::span<const TensorSource* const> sources) {
  const auto format_of = [](Split split) {
    switch (split) {
      case Split::none_bf16:
      case Split::bf16_e8_sm8: return WeightFormat::bf16;
      case Split::none_fp16:
      case Split::fp16_hi8_lo8:
      case Split::fp16_e5_lo8_s1m2: return WeightFormat::fp16;
      case Split::none_fp32:
      case Split::fp32_e8_sm8_r16: return WeightFormat::fp32;
      case Split::mxfp4: return WeightFormat::mxfp4;
      case Split::fp8: return WeightFormat::fp8;
      case Split::sliced84: return WeightFormat::sliced84;
      case Split::sliced63: return WeightFormat::sliced63;
      case Split::sliced42: return WeightFormat::sliced42;
      default: return static_cast<WeightFormat>(split);
    }
  };
  const WeightFormat first = format_of(sources[0]->split);
  const bool alike =
      std::all_of(sources.begin(), sources.end(), [&](const TensorSource* source) { return format_of(source->split) == first; });
  return alike ? first : WeightFormat::fp32;
}

StoredMatrix load_matrix(const std::shared_ptr<Backend>& backend, WeightFormat wanted, std::span<const TensorSource* const> sources,
                         SliceReading reading) {
  const WeightFormat format = held_format(wanted, sources);
  int64_t rows = 0;
  uint64_t staging_bytes = 0;
  for (const TensorSource* source : sources) {
    rows += source->rows;
    staging_bytes = std::max(staging_bytes, staging_size(source->rows, source->columns));
  }
  StoredMatrix stored(backend, format, rows, sources[0]->columns, reading);
  const DeviceMemory staging(backend, staging_bytes, DeviceMemory::Kind::staging);
  int64_t first_row = 0;
  for (const TensorSource* source : sources) {
    TensorReader reader(*source, reading == SliceReading::both ? kMaxPlanes : 1);
    if (!load_rows(*backend, stored.matrix, first_row, source->rows, *source, reader, staging)) {
      check_may_fall_back(format);
      stored = {};
      return load_matrix(backend, exact_format(sources), sources, reading);
    }
    first_row += source->rows;
  }
  return stored;
}

std::vector<StoredMatrix> load_blocks(const std::shared_ptr<Backend>& backend, WeightFormat wanted, const TensorSource& source,
                                      int64_t blocks) {
  const TensorSource* const whole[] = {&source};
  const WeightFormat format = held_format(wanted, whole);
  const int64_t rows = source.rows / blocks;
  const DeviceMemory staging(backend, staging_size(rows, source.columns), DeviceMemory::Kind::staging);
  TensorReader reader(source);
  std::vector<StoredMatrix> stored;
  for (int64_t block = 0; block < blocks; block++) {
    stored.emplace_back(backend, format, rows, source.columns);
    if (load_rows(*backend, stored.back().matrix, 0, rows, source, reader, staging)) continue;
    check_may_fall_back(format);
    stored.clear();
    return load_blocks(backend, exact_format(whole), source, blocks);
  }
  return stored;
}

ExpertMatrices load_expert(const std::shared_ptr<Backend>& backend, const ExpertShape& shape, const ExpertSource& source,
                           SliceReading reading) {
  ExpertMatrices expert;
  const TensorSource* const gate_up[] = {&source.gate, &source.up};
  const TensorSource* const gate[] = {&source.gate};
  const TensorSource* const up[] = {&source.up};
  const TensorSource* const down[] = {&source.down};
  const ExpertFormats held = {held_format(shape.format, gate), held_format(shape.format, up), held_format(shape.format, down)};
  if (shares_matrix(held, shape.glu.gate_rows())) {
    expert.gate_up = load_matrix(backend, shape.format, gate_up, reading);
  } else {
    expert.gate_up = load_matrix(backend, held.gate, gate, reading);
    expert.up = load_matrix(backend, held.up, up, reading);
  }
  expert.down = load_matrix(backend, shape.format, down, reading);
  if (shape.glu.bias) {
    expert.bias_memory = DeviceMemory(backend, float_bytes(shape.bias_count()));
    backend->copy_to_device(expert.bias_memory.floats(), source.biases.data(), float_bytes(shape.bias_count()));
    expert.biases = expert.bias_memory.floats();
  }
  return expert;
}

void check_source(const TensorSource& source, int64_t rows, int64_t columns, const std::string& what) {
  if (source.rows == rows && source.columns == columns) return;
  throw Error(ErrorCode::model_corrupt, what + " is " + std::to_string(source.rows) + " x " + std::to_string(source.columns) +
                                            ", the model's configuration asks for " + std::to_string(rows) + " x " +
                                            std::to_string(columns));
}

void check_expert_source(const ExpertSource& source, const ExpertShape& shape, const std::string& what) {
  check_source(source.gate, shape.glu.gate_rows(), shape.hidden_size, "the gate matrix of " + what);
  check_source(source.up, shape.glu.gate_rows(), shape.hidden_size, "the up matrix of " + what);
  check_source(source.down, shape.hidden_size, shape.glu.intermediate_size, "the down matrix of " + what);
  if (static_cast<int64_t>(source.biases.size()) == shape.bias_count()) return;
  throw Error(ErrorCode::model_corrupt, "the biases of " + what + " are " + std::to_string(source.biases.size()) +
                                            " numbers, the model's configuration asks for " + std::to_string(shape.bias_count()));
}

void check_slices(const ExpertSource& source, WeightFormat format, SliceReading reading) {
  for (const TensorSource* const tensor : {&source.gate, &source.up, &source.down}) {
    if (slice_bits(tensor->split) == slice_bits(format)) continue;
    throw Error(ErrorCode::internal, "slices are held only as they are stored, and other weights are not sliced here");
  }
  if (slice_bits(format) != 0 || reading == SliceReading::both) return;
  throw Error(ErrorCode::internal, "only a sliced expert has upper slices to be read alone");
}

}  // namespace odmoe
