#include "stored_expert.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "../src/runtime/load_plan.h"
#include "quantized_weights.h"
#include "reference_arithmetic.h"

namespace odmoe::test {
namespace {

std::atomic<int> next_turn = 0;

struct MatrixSize {
  int64_t rows;
  int64_t columns;
};

MatrixSize size_of(const ExpertShape& shape, size_t tensor) {
  if (tensor == 2) return {shape.hidden_size, shape.glu.intermediate_size};
  return {shape.glu.intermediate_size, shape.hidden_size};
}

int64_t width_of(const ExpertShape& shape) { return shape.format == WeightFormat::fp32 ? 4 : 2; }

// The codec of each plane: some planes are cut into shards and coded.
CodecKind codec_of(const StoredForm& form, int plane) {
  if (plane == 0) return form.codec;
  return plane == 2 && form.split == Split::fp16_e5_lo8_s1m2 ? CodecKind::packed3 : CodecKind::raw;
}

class ExpertFile {
 public:
  ExpertFile(std::string path, bool aligned) : path_(std::move(path)), aligned_(aligned) {
    if (!aligned) bytes_.resize(13);
  }

  ChunkLocation add(int plane, CodecKind codec, int level, std::span<const uint8_t> plain, uint64_t block_bytes) {
    if (aligned_) bytes_.resize((bytes_.size() + kReadAlignment - 1) / kReadAlignment * kReadAlignment);
    const std::vector<uint8_t> stored = encode_chunk(codec, level, plain, block_bytes);
    ChunkLocation chunk;
    chunk.plane = plane;
    chunk.path = path_;
    chunk.offset_bytes = bytes_.size();
    chunk.stored_bytes = stored.size();
    chunk.plain_bytes = plain.size();
    chunk.codec = codec;
    chunk.crc32c = crc32c(0, stored.data(), stored.size());
    bytes_.insert(bytes_.end(), stored.begin(), stored.end());
    return chunk;
  }

  void write() const {
    std::ofstream file(path_, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size()));
    check(file.good(), "writing " + path_);
  }

 private:
  std::string path_;
  bool aligned_;
  std::vector<uint8_t> bytes_;
};

std::vector<std::vector<uint8_t>> planes_of(const std::vector<uint8_t>& values, MatrixSize size, Split split) {
  if (!is_quantized(split)) return split_planes(values.data(), values.size(), split);
  const auto codes = values.begin() + size.rows * plane_row_bytes(split, 0, size.columns);
  return {{values.begin(), codes}, {codes, values.end()}};
}

TensorSource add_tensor(ExpertFile& file, const std::vector<uint8_t>& values, MatrixSize size, const StoredForm& form) {
  TensorSource source{size.rows, size.columns, form.split, {}, std::nullopt};
  const auto planes = planes_of(values, size, form.split);
  for (int plane = static_cast<int>(planes.size()) - 1; plane >= 0; plane--) {
    const std::vector<uint8_t>& plain = planes[static_cast<size_t>(plane)];
    const int64_t row_bytes = plane_row_bytes(form.split, plane, size.columns);
    const CodecKind codec = codec_of(form, plane);
    const bool sharded = plane == 0 || codec != CodecKind::raw;
    const int64_t shards = sharded ? std::min<int64_t>(form.shards, size.rows) : 1;
    for (int64_t i = 0; i < shards; i++) {
      const auto from = static_cast<uint64_t>(size.rows * i / shards * row_bytes);
      const auto to = static_cast<uint64_t>(size.rows * (i + 1) / shards * row_bytes);
      const int64_t block_rows = form.block_rows > 0 ? form.block_rows : expected_block_rows(size.columns);
      const auto block = static_cast<uint64_t>(block_rows * row_bytes);
      source.chunks.push_back(file.add(plane, codec, form.level, std::span(plain).subspan(from, to - from), block));
    }
  }
  return source;
}

}  // namespace

TestDirectory::TestDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "odmoe-native-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
  path_ = name;
}

TestDirectory::~TestDirectory() { std::filesystem::remove_all(path_); }

ExpertValues random_bits(const ExpertShape& shape, uint32_t seed) {
  std::mt19937 generator(seed);
  ExpertValues values{shape, {}};
  for (size_t tensor = 0; tensor < kExpertTensors; tensor++) {
    const MatrixSize size = size_of(shape, tensor);
    std::vector<uint8_t> bytes(static_cast<size_t>(size.rows * size.columns * width_of(shape)));
    for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
      const size_t pattern = i / 2 < 65536 ? i / 2 : generator();
      bytes[i] = static_cast<uint8_t>(pattern);
      bytes[i + 1] = static_cast<uint8_t>(pattern >> 8);
    }
    values.bytes.push_back(std::move(bytes));
  }
  return values;
}

ExpertValues gaussian_weights(const ExpertShape& shape, uint32_t seed) {
  ExpertValues values{shape, {}};
  for (size_t tensor = 0; tensor < kExpertTensors; tensor++) {
    const MatrixSize size = size_of(shape, tensor);
    const auto floats = random_values(static_cast<size_t>(size.rows * size.columns), seed + static_cast<uint32_t>(tensor), 0.02f);
    std::vector<uint8_t> bytes;
    for (const float value : floats) {
      const uint16_t bits = reference_to_bf16(value);
      bytes.push_back(static_cast<uint8_t>(bits));
      bytes.push_back(static_cast<uint8_t>(bits >> 8));
    }
    values.bytes.push_back(std::move(bytes));
  }
  return values;
}

ExpertValues quantized_weights(const ExpertShape& shape, Split split, uint32_t seed) {
  ExpertValues values{shape, {}};
  for (size_t tensor = 0; tensor < kExpertTensors; tensor++) {
    const MatrixSize size = size_of(shape, tensor);
    const auto weights =
        random_quantized_weights(seed + static_cast<uint32_t>(tensor), split, size.rows, size.columns, Scales::usual);
    values.bytes.push_back(weights.planes[0]);
    values.bytes.back().insert(values.bytes.back().end(), weights.planes[1].begin(), weights.planes[1].end());
  }
  return values;
}

ExpertValues sliced_weights(const ExpertShape& shape, Split split, uint32_t seed) {
  ExpertValues values{shape, {}};
  for (size_t tensor = 0; tensor < kExpertTensors; tensor++) {
    const MatrixSize size = size_of(shape, tensor);
    const auto floats = random_values(static_cast<size_t>(size.rows * size.columns), seed + static_cast<uint32_t>(tensor), 0.05f);
    const int64_t upper_bytes = plane_row_bytes(split, 0, size.columns);
    const int64_t lower_bytes = plane_row_bytes(split, 1, size.columns);
    std::vector<uint8_t> bytes(static_cast<size_t>(size.rows * (upper_bytes + lower_bytes)));
    uint8_t* const lower = bytes.data() + size.rows * upper_bytes;
    for (int64_t row = 0; row < size.rows; row++) {
      const float* const weights = floats.data() + row * size.columns;
      const char* const fault =
          slice_row(split, weights, size.columns, bytes.data() + row * upper_bytes, lower + row * lower_bytes);
      check(fault == nullptr, "weights that can be sliced");
    }
    values.bytes.push_back(std::move(bytes));
  }
  return values;
}

ExpertValues fp32_weights(const ExpertValues& sliced, Split split, SliceReading reading) {
  ExpertValues values{sliced.shape, {}};
  values.shape.format = WeightFormat::fp32;
  for (size_t tensor = 0; tensor < kExpertTensors; tensor++) {
    const MatrixSize size = size_of(sliced.shape, tensor);
    const uint8_t* const upper = sliced.bytes[tensor].data();
    const uint8_t* const lower = upper + size.rows * plane_row_bytes(split, 0, size.columns);
    std::vector<float> floats(static_cast<size_t>(size.rows * size.columns));
    for (int64_t row = 0; row < size.rows; row++) {
      slices_to_floats(split, reading, upper + row * plane_row_bytes(split, 0, size.columns),
                       lower + row * plane_row_bytes(split, 1, size.columns), size.columns, floats.data() + row * size.columns);
    }
    const auto* const bytes = reinterpret_cast<const uint8_t*>(floats.data());
    values.bytes.emplace_back(bytes, bytes + floats.size() * sizeof(float));
  }
  return values;
}

ExpertSource store_expert(const std::string& path, const ExpertValues& values, const StoredForm& form) {
  ExpertFile file(path, form.aligned);
  std::array<TensorSource, kExpertTensors> tensors;
  for (size_t i = 0; i < kExpertTensors; i++) {
    tensors[i] = add_tensor(file, values.bytes[i], size_of(values.shape, i), form);
  }
  file.write();
  return {tensors[0], tensors[1], tensors[2], {}};
}

uint64_t stored_bytes(const ExpertSource& source) {
  uint64_t total = 0;
  for (const TensorSource* tensor : {&source.gate, &source.up, &source.down}) {
    for (const ChunkLocation& chunk : tensor->chunks) total += chunk.stored_bytes;
  }
  return total;
}

LoaderOptions options_for(const std::vector<ExpertSource>& experts) {
  LoaderOptions options;
  for (const ExpertSource& source : experts) {
    uint64_t exponents = 0;
    uint64_t rest = 0;
    for (const TensorSource* tensor : {&source.gate, &source.up, &source.down}) {
      for (const ChunkLocation& chunk : tensor->chunks) {
        const uint64_t end = chunk.offset_bytes + chunk.stored_bytes;
        const uint64_t bytes =
            (end + kReadAlignment - 1) / kReadAlignment * kReadAlignment - chunk.offset_bytes / kReadAlignment * kReadAlignment;
        uint64_t& largest = chunk.plane == 0 ? options.shard_exponent_bytes : options.shard_sign_mantissa_bytes;
        if (chunk.codec != CodecKind::raw) largest = std::max(largest, bytes);
        (chunk.plane == 0 ? exponents : rest) += bytes;
      }
    }
    options.expert_exponent_bytes = std::max(options.expert_exponent_bytes, exponents);
    options.expert_sign_mantissa_bytes = std::max(options.expert_sign_mantissa_bytes, rest);
  }
  options.decompression_threads = 2;
  options.read_depth = 4;
  return options;
}

ExpertMatrices expected_matrices(const std::shared_ptr<Backend>& backend, const ExpertValues& values, Split split) {
  ExpertMatrices matrices(backend, values.shape);
  for (size_t tensor = 0; tensor < kExpertTensors; tensor++) {
    const auto planes = planes_of(values.bytes[tensor], size_of(values.shape, tensor), split);
    const uint8_t* pointers[kMaxPlanes] = {};
    for (size_t i = 0; i < planes.size(); i++) pointers[i] = planes[i].data();
    Matrix& matrix = tensor == 2 ? matrices.down.matrix : matrices.gate_up.matrix;
    const int64_t first_row = tensor == 1 ? values.shape.glu.intermediate_size : 0;
    backend->write_rows(matrix, first_row, size_of(values.shape, tensor).rows, split, pointers);
  }
  return matrices;
}

void check_same_matrices(const ExpertMatrices& actual, const ExpertMatrices& expected, const std::string& what) {
  const auto same_bytes = [](const DeviceMemory& left, const DeviceMemory& right) {
    const uint64_t bytes = left.buffer().bytes;
    return bytes == right.buffer().bytes && (bytes == 0 || std::memcmp(left.bytes(), right.bytes(), bytes) == 0);
  };
  const auto same = [&](const StoredMatrix& left, const StoredMatrix& right) {
    return same_bytes(left.memory, right.memory) && same_bytes(left.lower_memory, right.lower_memory);
  };
  check(same(actual.gate_up, expected.gate_up), what + ": gate and up differ");
  check(same(actual.down, expected.down), what + ": down differs");
}

void AwaitedLoad::settled(const LoadOutcome& outcome, std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  if (settled_) std::abort();
  settled_ = true;
  turn_ = next_turn++;
  outcome_ = outcome;
  error_ = std::move(error);
  changed_.notify_all();
}

LoadOutcome AwaitedLoad::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return settled_; });
  if (error_ != nullptr) std::rethrow_exception(error_);
  return outcome_;
}

bool AwaitedLoad::is_settled() {
  const std::lock_guard lock(mutex_);
  return settled_;
}

int AwaitedLoad::turn() {
  const std::lock_guard lock(mutex_);
  return turn_;
}

void AwaitedLoad::reuse() {
  const std::lock_guard lock(mutex_);
  settled_ = false;
}

}  // namespace odmoe::test
