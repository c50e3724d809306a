#include "repacked_matrix.h"

#include <bit>
#include <cstring>

#include "half.h"
#include "odmoe/error.h"
#include "odmoe/quantized_values.h"
#include "quantized_weights.h"
#include "stored_chunk.h"

namespace odmoe {
namespace {

constexpr int64_t kGgufMxfp4Bytes = 17;
constexpr int64_t kGgufNvfp4Columns = 64;
constexpr int64_t kGgufNvfp4Bytes = 36;

// In GGUF, byte i of a block has value i in its low half and value bytes + i in the high one; here neighbours share a byte.
void pair_neighbours(const uint8_t* halves, int bytes, uint8_t* out) {
  for (int i = 0; i < bytes; i += 2) {
    out[i / 2] = static_cast<uint8_t>((halves[i] & 15) | (halves[i + 1] & 15) << 4);
    out[(bytes + i) / 2] = static_cast<uint8_t>(halves[i] >> 4 | (halves[i + 1] & 0xf0));
  }
}

class GgufMxfp4Matrix final : public RepackedMatrix {
 public:
  using RepackedMatrix::RepackedMatrix;

 private:
  void repack(int64_t first, int64_t count) override {
    const int64_t blocks = columns_ / kMxfp4Block;
    const uint8_t* block = read(0, blocks * kGgufMxfp4Bytes, first, count);
    for (int64_t row = 0; row < count; row++) {
      for (int64_t i = 0; i < blocks; i++, block += kGgufMxfp4Bytes) {
        out(1, row)[i] = block[0];
        pair_neighbours(block + 1, kMxfp4Block / 2, out(0, row) + i * (kMxfp4Block / 2));
      }
    }
  }
};

// NVFP4 of GGUF, and of files that have the split's codes and scales.
class Nvfp4Matrix final : public RepackedMatrix {
 public:
  using RepackedMatrix::RepackedMatrix;

 private:
  void repack(int64_t first, int64_t count) override {
    if (view_.form == StoredForm::gguf_nvfp4) {
      repack_blocks(first, count);
    } else {
      copy_planes(first, count);
    }
    for (int64_t row = 0; row < count; row++) {
      const float scale = matrix_scale(first + row);
      std::memcpy(out(1, row) + columns_ / kNvfp4Block, &scale, sizeof scale);
    }
  }

  void repack_blocks(int64_t first, int64_t count) {
    const int64_t blocks = columns_ / kGgufNvfp4Columns;
    const uint8_t* block = read(0, blocks * kGgufNvfp4Bytes, first, count);
    for (int64_t row = 0; row < count; row++) {
      for (int64_t i = 0; i < blocks; i++, block += kGgufNvfp4Bytes) {
        std::memcpy(out(1, row) + i * 4, block, 4);
        for (int part = 0; part < 4; part++) pair_neighbours(block + 4 + part * 8, 8, out(0, row) + i * 32 + part * 8);
      }
    }
  }

  void copy_planes(int64_t first, int64_t count) {
    const int64_t code_bytes = columns_ / 2;
    const int64_t scale_bytes = columns_ / kNvfp4Block;
    const uint8_t* const codes = read(0, code_bytes, first, count);
    const uint8_t* const scales = read(1, scale_bytes, first, count);
    std::memcpy(out(0, 0), codes, static_cast<size_t>(count * code_bytes));
    for (int64_t row = 0; row < count; row++)
      std::memcpy(out(1, row), scales + row * scale_bytes, static_cast<size_t>(scale_bytes));
  }

  // Each of the scales is for as many rows as the others.
  float matrix_scale(int64_t row) {
    if (scales_.empty()) {
      const std::vector<uint8_t> bytes = read_whole(view_.form == StoredForm::gguf_nvfp4 ? 1 : 2);
      scales_.assign(std::max<size_t>(1, bytes.size() / 4), 1.0f);
      std::memcpy(scales_.data(), bytes.data(), bytes.size());
    }
    return scales_[static_cast<size_t>(row / (rows_total_ / static_cast<int64_t>(scales_.size())))];
  }

  std::vector<float> scales_;
};

class Fp8Matrix final : public RepackedMatrix {
 public:
  using RepackedMatrix::RepackedMatrix;

 private:
  void repack(int64_t first, int64_t count) override {
    std::memcpy(out(0, 0), read(0, columns_, first, count), static_cast<size_t>(count * columns_));
    const int64_t scales = plane_row_bytes(split_, 1, columns_) / 4;
    const int64_t width = view_.form == StoredForm::fp8_e8m0 ? 1 : 2;
    const int64_t first_scales = first / view_.scale_block_rows;
    const int64_t scale_rows = (first + count - 1) / view_.scale_block_rows - first_scales + 1;
    const uint8_t* const stored = read(1, scales * width, first_scales, scale_rows);
    for (int64_t row = 0; row < count; row++) {
      const uint8_t* const from = stored + ((first + row) / view_.scale_block_rows - first_scales) * scales * width;
      for (int64_t i = 0; i < scales; i++) {
        const float scale = widened(from + i * width);
        std::memcpy(out(1, row) + 4 * i, &scale, sizeof scale);
      }
    }
  }

  float widened(const uint8_t* scale) const {
    if (view_.form == StoredForm::fp8_e8m0) return kE8m0Values[scale[0]];
    const auto bits = static_cast<uint16_t>(scale[0] | scale[1] << 8);
    return view_.form == StoredForm::fp8_fp16 ? fp16_to_float(bits) : std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

class Int8Matrix final : public RepackedMatrix {
 public:
  using RepackedMatrix::RepackedMatrix;

 private:
  void repack(int64_t first, int64_t count) override {
    const uint8_t* const codes = read(0, columns_, first, count);
    for (int64_t i = 0; i < count * columns_; i++) out(0, 0)[i] = codes[i] ^ 0x80;
    const int64_t width = plane_row_bytes(split_, 1, columns_);
    const int64_t first_scale = first / view_.scale_block_rows;
    const uint8_t* const scales = read(1, width, first_scale, (first + count - 1) / view_.scale_block_rows - first_scale + 1);
    for (int64_t row = 0; row < count; row++) {
      const int64_t scale = (first + row) / view_.scale_block_rows - first_scale;
      std::memcpy(out(1, row), scales + scale * width, static_cast<size_t>(width));
    }
  }
};

}  // namespace

std::unique_ptr<MatrixReader> open_matrix_reader(const TensorSource& source) {
  switch (source.view->form) {
    case StoredForm::planes: return std::make_unique<ViewedMatrix>(source);
    case StoredForm::gguf_mxfp4: return std::make_unique<GgufMxfp4Matrix>(source);
    case StoredForm::gguf_nvfp4:
    case StoredForm::nvfp4: return std::make_unique<Nvfp4Matrix>(source);
    case StoredForm::fp8_bf16:
    case StoredForm::fp8_fp16:
    case StoredForm::fp8_e8m0: return std::make_unique<Fp8Matrix>(source);
    case StoredForm::int8: return std::make_unique<Int8Matrix>(source);
    case StoredForm::pack_quantized:
    case StoredForm::gptq:
    case StoredForm::gptq_v1:
    case StoredForm::awq: return open_grouped_matrix(source);
  }
  throw Error(ErrorCode::internal, "a view is of a form that does not exist");
}

RepackedMatrix::RepackedMatrix(const TensorSource& source)
    : view_(*source.view),
      split_(view_.stored_split),
      rows_total_(view_.stored_rows),
      columns_(view_.stored_columns),
      rows_at_once_(std::max<int64_t>(1, kBatchBytes / plane_row_bytes(split_, 0, columns_))),
      first_chunk_(source.chunks.front()) {
  for (int plane = 0; plane < kMaxStoredPlanes; plane++) planes_.emplace_back(source.chunks, plane);
}

void RepackedMatrix::refuse(const std::string& what) const { throw_corrupt(first_chunk_, what); }

const uint8_t* RepackedMatrix::read(int plane, int64_t row_bytes, int64_t first, int64_t count) {
  std::vector<uint8_t>& buffer = raw_[plane];
  const auto bytes = static_cast<uint64_t>(count * row_bytes);
  if (buffer.size() < bytes) buffer.resize(bytes);
  planes_[static_cast<size_t>(plane)].read(static_cast<uint64_t>(first * row_bytes), buffer.data(), bytes);
  return buffer.data();
}

std::vector<uint8_t> RepackedMatrix::read_whole(int plane) {
  std::vector<uint8_t> bytes(plane_bytes(plane));
  if (!bytes.empty()) planes_[static_cast<size_t>(plane)].read(0, bytes.data(), bytes.size());
  return bytes;
}

void RepackedMatrix::read_rows(int64_t first, int64_t count) {
  for (int plane = 0; plane < plane_count(split_); plane++) {
    const auto bytes = static_cast<size_t>(count * plane_row_bytes(split_, plane, columns_));
    if (rows_[plane].size() < bytes) rows_[plane].resize(bytes);
  }
  repack(first, count);
  for (int64_t row = 0; row < count; row++) {
    const uint8_t* planes[kMaxPlanes] = {};
    row_planes(row, planes);
    const char* const fault = quantized_fault(split_, planes, columns_);
    if (fault != nullptr) refuse(std::string(fault) + ", in row " + std::to_string(first + row));
  }
}

void RepackedMatrix::row_planes(int64_t row, const uint8_t** planes) const {
  for (int plane = 0; plane < plane_count(split_); plane++)
    planes[plane] = rows_[plane].data() + row * plane_row_bytes(split_, plane, columns_);
}

uint64_t RepackedMatrix::read_bytes() const {
  uint64_t total = 0;
  for (const ViewedPlane& plane : planes_) total += plane.read_bytes();
  return total;
}

}  // namespace odmoe
