// What an attention layer keeps of a sequence: vectors of every position, in blocks of kAttentionChunk positions. Keys of all heads and
// then values; of latent attention one vector, which is both. Whoever owns it guards it.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "odmoe/backend.h"
#include "odmoe/device.h"
#include "odmoe/model_shape.h"

namespace odmoe {

class KeyValueCache {
 public:
  KeyValueCache(std::shared_ptr<Backend> backend, const AttentionMixer& mixer, int max_positions);
  KeyValueCache(std::shared_ptr<Backend> backend, const LatentMixer& mixer, int max_positions);

  int64_t row_floats() const { return vectors_ * vector_floats_; }
  int written() const { return written_; }
  void set_written(int end) { written_ = end; }
  KeyValueLayer layer() const { return {keys_.data(), values_.data()}; }

  // Memory for positions < end, all or nothing; returns the blocks that are new, for drop(). Throws DEVICE_OUT_OF_MEMORY.
  std::vector<int> reserve(int end);
  void drop(const std::vector<int>& blocks) noexcept;
  // Rows that are written, row by row on the host.
  void read(int position, int rows, std::span<uint8_t> out) const;
  // Into memory that is reserved.
  void write(int position, int rows, std::span<const uint8_t> in);

 private:
  KeyValueCache(std::shared_ptr<Backend> backend, int64_t vectors, int64_t vector_floats, int max_positions);
  // Where a range lies on the device: block by block, in each vector by vector.
  std::vector<SpacedRows> places(int position, int rows) const;
  // Each vector of a range in the order of places(): visit(byte where it stands in the range's rows).
  template <typename Visit>
  void for_each_vector(int position, int rows, Visit visit) const;

  std::shared_ptr<Backend> backend_;
  int64_t vectors_;
  int64_t vector_floats_;
  // As many entries as the model's longest sequence has blocks, so that they never move under a running pass.
  std::vector<DeviceMemory> blocks_;
  std::vector<float*> keys_;
  std::vector<float*> values_;
  int written_ = 0;
};

}  // namespace odmoe
