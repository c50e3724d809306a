// One GLU expert on a device: down(glu(gate x, up x)), or without a gate down(act(gate and up x)). The same code runs it in a worker's slot and in a whole model.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "odmoe/device.h"
#include "odmoe/store.h"

namespace odmoe {

// A matrix and the device memory that holds it.
struct StoredMatrix {
  Matrix matrix;
  DeviceMemory memory;
  DeviceMemory lower_memory;  // of a lower slice; empty: there is none

  StoredMatrix() = default;
  // `reading`: the only one of a sliced matrix; it has memory for a lower slice where that is read.
  StoredMatrix(const std::shared_ptr<Backend>& backend, WeightFormat format, int64_t rows, int64_t columns,
               SliceReading reading = SliceReading::both);

  uint64_t bytes() const { return memory.buffer().bytes + lower_memory.buffer().bytes; }
};

// The three matrices outside the device, and the biases of gate, up and down, one after another.
struct ExpertSource {
  TensorSource gate;
  TensorSource up;
  TensorSource down;
  std::vector<float> biases;
  std::optional<float> glu_limit{};  // in place of the limit of the shape's GLU
};

// The formats in which an expert's matrices are held.
struct ExpertFormats {
  WeightFormat gate = WeightFormat::bf16;
  WeightFormat up = WeightFormat::bf16;
  WeightFormat down = WeightFormat::bf16;
  bool operator==(const ExpertFormats&) const = default;
};

struct ExpertShape {
  int64_t hidden_size = 0;
  GluShape glu;
  WeightFormat format = WeightFormat::bf16;
  // With WeightFormat::shipped: the formats of the experts that a slot may have to hold, each combination once.
  std::vector<ExpertFormats> shipped{};

  std::vector<ExpertFormats> formats() const {
    return format == WeightFormat::shipped ? shipped : std::vector<ExpertFormats>{{format, format, format}};
  }

  // Biases of gate, up and down together; 0 where experts have none.
  int64_t bias_count() const { return glu.bias ? 2 * glu.intermediate_size + hidden_size : 0; }
};

// gate and up share one matrix of 2 x gate_rows() rows, so that one product computes both, unless their formats do not allow it
// (shares_matrix). Then gate_up has the gate rows alone, and `up` has the others.
struct ExpertMatrices {
  StoredMatrix gate_up;
  StoredMatrix up;
  StoredMatrix down;
  DeviceMemory bias_memory;       // for an expert with its own bias memory
  const float* biases = nullptr;  // device memory: gate, up, down

  ExpertMatrices() = default;
  ExpertMatrices(const std::shared_ptr<Backend>& backend, const ExpertShape& shape, SliceReading reading = SliceReading::both);

  bool has_up() const { return up.matrix.rows != 0; }
};

// True if gate and up of these formats can be rows of one matrix. A column order is one of a whole matrix, and a tile of fp8_tile
// must not hold rows of both.
bool shares_matrix(const ExpertFormats& formats, int64_t gate_rows);
// The formats that hold an expert's values as they are shipped.
ExpertFormats exact_formats(const ExpertSource& source);
// The formats in which a slot for `shape` holds this expert. Throws INTERNAL for formats that the slots were not made for.
ExpertFormats slot_formats(const ExpertShape& shape, const ExpertSource& source);

// Offset of the up matrix behind the gate matrix in the memory for both.
uint64_t up_offset(const Backend& backend, const ExpertFormats& formats, const ExpertShape& shape);
// Bytes of the memory for gate and up, and for down, that holds any of the shape's formats.
uint64_t gate_up_bytes(const Backend& backend, const ExpertShape& shape);
uint64_t down_bytes(const Backend& backend, const ExpertShape& shape);

// Most rows that an expert computes at a time; more rows are cut into tiles of this size. It bounds the activations' memory.
inline constexpr int kExpertTileRows = 128;

// Memory for the activations of one tile.
struct ExpertActivations {
  int rows = 0;
  DeviceMemory input;       // rows x hidden
  DeviceMemory gate_up;     // rows x 2 gate_rows()
  DeviceMemory activation;  // rows x intermediate
  DeviceMemory output;      // rows x hidden

  ExpertActivations() = default;
  ExpertActivations(const std::shared_ptr<Backend>& backend, const ExpertShape& shape, int max_rows);
};

// An expert and its number of rows.
struct ExpertRows {
  const ExpertMatrices* expert = nullptr;
  int rows = 0;
};

// out[i] = expert(in[i]) for rows of hidden_size floats: first the rows of the first expert, then those of the second, and so on;
// together at most activations.rows.
void run_experts(Backend& backend, const GluShape& glu, std::span<const ExpertRows> experts, const ExpertActivations& activations,
                 float* out, const float* in);

// Staging for reading one tensor in pieces of rows.
inline constexpr uint64_t kStagingBytes = 1024 * 1024;
uint64_t staging_size(int64_t rows, int64_t columns);

// The smallest of the formats that hold all values of these sources exactly.
WeightFormat exact_format(std::span<const TensorSource* const> sources);
// One matrix of the sources' rows, one source below another; all have the same number of columns. It is stored in `format`, or in
// the values' exact format where `format` is fixed4 and cannot hold them. `reading`: how products read a sliced matrix; a lower slice
// that they do not read is not loaded. Throws the errors of reading, and DEVICE_OUT_OF_MEMORY.
StoredMatrix load_matrix(const std::shared_ptr<Backend>& backend, WeightFormat format, std::span<const TensorSource* const> sources,
                         SliceReading reading = SliceReading::both);
// Loads `blocks` matrices with equal numbers of rows, which stand one below another in the source. All have one format, chosen as
// above.
std::vector<StoredMatrix> load_blocks(const std::shared_ptr<Backend>& backend, WeightFormat format, const TensorSource& source,
                                      int64_t blocks);
ExpertMatrices load_expert(const std::shared_ptr<Backend>& backend, const ExpertShape& shape, const ExpertSource& source,
                           SliceReading reading);

// Throws MODEL_CORRUPT unless the source has these sizes.
void check_source(const TensorSource& source, int64_t rows, int64_t columns, const std::string& what);
void check_expert_source(const ExpertSource& source, const ExpertShape& shape, const std::string& what);
// Throws INTERNAL unless `format` can hold the source's slices and has this reading: slices are held only as they are stored.
void check_slices(const ExpertSource& source, WeightFormat format, SliceReading reading);

}  // namespace odmoe
