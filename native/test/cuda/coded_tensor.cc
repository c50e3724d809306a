#include "coded_tensor.h"

#include <algorithm>

namespace odmoe::cuda_test {

Staging::Staging(std::shared_ptr<Backend> backend, const std::vector<uint8_t>& bytes, uint64_t offset)
    : backend_(std::move(backend)), buffer_(backend_->allocate_staging(bytes.size() + offset)), offset_(offset) {
  std::copy(bytes.begin(), bytes.end(), this->bytes());
}

void Staging::fill(uint8_t value) { std::memset(buffer_.data, value, buffer_.bytes); }

PlainTensor random_tensor(std::mt19937& random, Split split, int64_t rows, int64_t columns, bool wild) {
  PlainTensor tensor{split, rows, columns, {}};
  std::normal_distribution<double> exponent(0.0, 1.6);
  std::uniform_int_distribution<int> noise(0, 255);
  std::uniform_int_distribution<int> chance(0, 999);
  const bool is_five_bits = split == Split::fp16_e5_lo8_s1m2;
  for (int plane = 0; plane < plane_count(split); ++plane) {
    std::vector<uint8_t> bytes(static_cast<size_t>(rows) * tensor.row_bytes(plane));
    const bool first = plane == 0 && plane_count(split) > 1;
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<uint8_t>(noise(random));
      const bool noisy = wild && i / 4096 % 5 == 3;
      if (first && !noisy && chance(random) > 0) {
        const int centre = split == Split::fp16_hi8_lo8 ? 40 : is_five_bits ? 12 : 120;
        bytes[i] = static_cast<uint8_t>(std::clamp(centre + static_cast<int>(exponent(random)), 0, 255));
      }
      if (is_five_bits && plane == 0) bytes[i] &= 31;
      if (is_five_bits && plane == 2) bytes[i] &= 7;
    }
    tensor.planes.push_back(std::move(bytes));
  }
  return tensor;
}

CodedPlane::CodedPlane(std::shared_ptr<Backend> backend, const PlainTensor& tensor, int plane, CodecKind codec, int64_t block_rows,
                       uint64_t offset)
    : codec_(codec),
      block_rows_(block_rows),
      row_bytes_(tensor.row_bytes(plane)),
      encoded_(encode_chunk(codec, 1, tensor.planes[static_cast<size_t>(plane)], static_cast<uint64_t>(block_rows) * row_bytes_)),
      staging_(std::move(backend), encoded_, offset) {
  decoder_.open(codec, {staging_.bytes(), encoded_.size()}, tensor.planes[static_cast<size_t>(plane)].size(), 0);
}

PlaneSource CodedPlane::rows(int64_t first_row, int64_t rows, std::vector<CodedBlock>& blocks) const {
  const auto first = static_cast<uint64_t>(first_row / block_rows_);
  const auto end = static_cast<uint64_t>((first_row + rows + block_rows_ - 1) / block_rows_);
  blocks.clear();
  for (uint64_t i = first; i < end; ++i) {
    const std::span<const uint8_t> coded = decoder_.coded_block(i);
    blocks.push_back({coded.data(), coded.size(), decoder_.plain_bytes_of(i)});
  }
  PlaneSource source;
  source.codec = codec_;
  source.table = decoder_.table();
  source.blocks = blocks.data();
  source.block_count = static_cast<int>(blocks.size());
  source.skipped_bytes = static_cast<uint64_t>(first_row % block_rows_) * row_bytes_;
  return source;
}

void CodedPlane::damage(std::mt19937& random, int bytes) {
  std::vector<std::span<const uint8_t>> coded;
  for (uint64_t i = 0; i < decoder_.block_count(); ++i) coded.push_back(decoder_.coded_block(i));
  for (int i = 0; i < bytes; ++i) {
    const std::span<const uint8_t> block = coded[random() % coded.size()];
    staging_.bytes()[static_cast<size_t>(block.data() - staging_.bytes()) + random() % block.size()] =
        static_cast<uint8_t>(random());
  }
  staging_.bytes()[decoder_.table() - staging_.bytes()] = static_cast<uint8_t>(random());
}

StoredWeights::StoredWeights(std::shared_ptr<Backend> backend, WeightFormat format, int64_t rows, int64_t columns)
    : backend_(std::move(backend)) {
  matrix = {format, rows, columns, backend_->allocate(backend_->matrix_bytes(format, rows, columns))};
}

std::vector<uint8_t> StoredWeights::bytes() const {
  std::vector<uint8_t> bytes(matrix.storage.bytes);
  backend_->copy_to_host(bytes.data(), matrix.storage.data, bytes.size());
  return bytes;
}

void write_plain(Backend& backend, Matrix& matrix, int64_t first_row, const PlainTensor& tensor) {
  const uint8_t* planes[kMaxPlanes] = {};
  for (size_t i = 0; i < tensor.planes.size(); ++i) planes[i] = tensor.planes[i].data();
  expect(backend.write_rows(matrix, first_row, tensor.rows, tensor.split, planes), "rows do not fit their format");
}

}  // namespace odmoe::cuda_test
