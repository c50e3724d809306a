#include "odmoe/expert_maps.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "kernel_table.h"
#include "odmoe/error.h"
#include "odmoe/float_environment.h"
#include "weight_layout.h"

namespace odmoe {
namespace {

using cpu::KernelTable;

// A matrix in the layout of the product kernels.
struct PackedMatrix {
  PackedMatrix(std::span<const int8_t> values, std::span<const float> scales, int64_t width)
      : rows(static_cast<int64_t>(scales.size())), columns(width), bytes(cpu::storage_bytes(WeightFormat::int8, rows, columns)) {
    const int64_t tile_bytes = cpu::tile_bytes(WeightFormat::int8, columns);
    for (int64_t row = 0; row < rows; ++row) {
      uint8_t* const tile = bytes.data() + row / cpu::kTileRows * tile_bytes + row % cpu::kTileRows * kLanes;
      for (int64_t column = 0; column < columns; column += kLanes) {
        std::memcpy(tile + column * cpu::kTileRows, values.data() + row * columns + column,
                    static_cast<size_t>(std::min<int64_t>(kLanes, columns - column)));
      }
    }
    std::memcpy(bytes.data() + cpu::scales_offset(WeightFormat::int8, rows, columns), scales.data(), scales.size_bytes());
  }

  // out: n x rows. sums: kThreadScratch floats.
  void multiply(const KernelTable& kernels, float* out, const float* in, int n, float* sums) const {
    kernels.matmul({WeightFormat::int8, bytes.data(), rows, columns, in, columns, out, rows, n}, 0, cpu::row_tiles(rows),
                   {sums, nullptr});
  }

  int64_t rows;
  int64_t columns;
  std::vector<uint8_t> bytes;
};

struct PackedLayer {
  PackedMatrix units;
  PackedMatrix heads;
  std::vector<float> biases;
};

void check_shape(const ExpertMapsShape& shape) {
  const auto end = shape.distances.end();
  const bool rises = std::adjacent_find(shape.distances.begin(), end, std::greater_equal<>{}) == end;
  if (shape.hidden_size < 1 || shape.experts < 1 || shape.units < 1 || shape.layers < 1 || !rises || shape.distances.empty() ||
      shape.distances.front() < 0) {
    throw Error(ErrorCode::internal, "the shape of expert maps has a size below 1, or distances that do not rise from 0 or more");
  }
}

void check_layer(const ExpertMapsShape& shape, int layer, const LayerMaps& maps) {
  const auto hidden = static_cast<size_t>(shape.hidden_size);
  const auto units = static_cast<size_t>(shape.units);
  const auto rows = static_cast<size_t>(shape.distances_at(layer)) * static_cast<size_t>(shape.experts);
  const auto finite = [](const std::vector<float>& values) {
    return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
  };
  const bool fits = maps.units.size() == units * hidden && maps.unit_scales.size() == units && maps.heads.size() == rows * units &&
                    maps.head_scales.size() == rows && maps.biases.size() == rows;
  if (!fits || !finite(maps.unit_scales) || !finite(maps.head_scales) || !finite(maps.biases)) {
    throw Error(ErrorCode::internal,
                "the expert maps of layer " + std::to_string(layer) + " do not fit their shape, or are not finite");
  }
}

// Sets out to sigmoid(scores + biases); NaN becomes 0.
void to_probabilities(const KernelTable& kernels, std::span<float> out, std::vector<float>& scores,
                      const std::vector<float>& biases) {
  const auto heads = static_cast<int64_t>(biases.size());
  for (size_t done = 0; done < out.size(); done += biases.size()) kernels.add(scores.data() + done, biases.data(), heads, 1.0f);
  std::fill(out.begin(), out.end(), 1.0f);
  kernels.gate(out.data(), scores.data(), static_cast<int64_t>(out.size()), Gate::sigmoid);
  for (float& probability : out) probability = probability >= 0.0f ? probability : 0.0f;
}

}  // namespace

int ExpertMapsShape::distances_at(int layer) const {
  return static_cast<int>(
      std::count_if(distances.begin(), distances.end(), [&](int distance) { return distance < layers - layer; }));
}

struct ExpertMaps::Packed {
  const KernelTable& kernels;
  std::vector<PackedLayer> layers;
};

ExpertMaps::ExpertMaps(ExpertMapsShape shape, std::span<const LayerMaps> layers, const std::string& instruction_set)
    : shape_(std::move(shape)) {
  check_shape(shape_);
  if (layers.size() != static_cast<size_t>(shape_.layers)) {
    throw Error(ErrorCode::internal,
                "expert maps for " + std::to_string(shape_.layers) + " layers were given for " + std::to_string(layers.size()));
  }
  std::vector<PackedLayer> packed;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    const LayerMaps& maps = layers[static_cast<size_t>(layer)];
    check_layer(shape_, layer, maps);
    packed.push_back({PackedMatrix(maps.units, maps.unit_scales, shape_.hidden_size),
                      PackedMatrix(maps.heads, maps.head_scales, shape_.units), maps.biases});
  }
  packed_ = std::make_unique<Packed>(Packed{cpu::choose_kernels(instruction_set), std::move(packed)});
}

ExpertMaps::~ExpertMaps() = default;

std::vector<float> ExpertMaps::predict(int layer, std::span<const float> states, int rows) const {
  const int64_t hidden = shape_.hidden_size;
  if (layer < 0 || layer >= shape_.layers || rows < 0 || states.size() != static_cast<size_t>(rows) * static_cast<size_t>(hidden)) {
    throw Error(ErrorCode::internal, "the states for the expert maps of layer " + std::to_string(layer) + " do not fit " +
                                         std::to_string(rows) + " rows of " + std::to_string(hidden));
  }
  const ExactFloatEnvironment exact;
  const KernelTable& kernels = packed_->kernels;
  const PackedLayer& maps = packed_->layers[static_cast<size_t>(layer)];
  const int64_t heads = maps.heads.rows;
  // More rows at a time would expand the weights.
  const int most = std::min(rows, cpu::kMostTokensAtOnce);
  std::vector<float> normed(static_cast<size_t>(most * hidden));
  std::vector<float> products(static_cast<size_t>(most * maps.units.rows));
  std::vector<float> activations(products.size());
  std::vector<float> scores(static_cast<size_t>(most * heads));
  const auto sums = std::make_unique_for_overwrite<float[]>(cpu::kThreadScratch);
  std::vector<float> result(static_cast<size_t>(rows * heads));
  for (int done = 0; done < rows; done += most) {
    const int n = std::min(most, rows - done);
    // The kernels only read from the input.
    float* const in = const_cast<float*>(states.data()) + done * hidden;
    const auto size = static_cast<int>(hidden);
    const NormWork norm{
        {normed.data(), hidden, 0, n, 1, size}, {in, hidden, 0, n, 1, size}, nullptr, static_cast<float>(hidden), kMapEpsilon};
    kernels.normalize(norm, 0, n);
    maps.units.multiply(kernels, products.data(), normed.data(), n, sums.get());
    std::fill(activations.begin(), activations.end(), 1.0f);
    kernels.gate(activations.data(), products.data(), n * maps.units.rows, Gate::silu);
    maps.heads.multiply(kernels, scores.data(), activations.data(), n, sums.get());
    to_probabilities(kernels, std::span(result).subspan(static_cast<size_t>(done * heads), static_cast<size_t>(n * heads)), scores,
                     maps.biases);
  }
  return result;
}

}  // namespace odmoe
