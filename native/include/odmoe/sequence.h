// The KV cache of one sequence: blocks of kAttentionChunk positions per layer, taken from the device as positions are used.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "odmoe/model.h"

namespace odmoe {

class Sequence : public LiveCount<Sequence> {
 public:
  explicit Sequence(std::shared_ptr<Model> model);

  // Positions written in every layer.
  int length() const;
  // Throws INTERNAL for what the model has no layer or no positions for.
  void check_range(int layer, int position, int rows) const;
  // F32 rows [position, position + rows) of one layer, each kv_heads x head_dim. Throws INTERNAL for positions not written.
  void read_key_values(int layer, int position, int rows, std::span<uint8_t> keys, std::span<uint8_t> values) const;
  // Overwrites rows, or appends right behind the highest written one. Throws INTERNAL for a gap, or while a pass that works on
  // the sequence runs; DEVICE_OUT_OF_MEMORY.
  void write_key_values(int layer, int position, int rows, std::span<const uint8_t> keys, std::span<const uint8_t> values);
  // Forgets positions >= length; their memory stays with the sequence. Throws INTERNAL while a pass runs on it.
  void truncate(int length);

  // For passes. reserve: memory for positions < end in all layers (all or nothing); written: positions < end of a layer are there.
  void reserve(int end);
  void written(int layer, int end);
  KeyValueLayer cache(int layer) const;
  const Model* model() const { return model_.get(); }

  // A call of a pass that works on the sequence, from being asked for until done.
  class Use {
   public:
    explicit Use(std::shared_ptr<Sequence> sequence) : sequence_(std::move(sequence)) { sequence_->uses_++; }
    ~Use() {
      if (sequence_ != nullptr) sequence_->uses_--;
    }
    Use(Use&&) noexcept = default;
    Use& operator=(Use&&) = delete;

   private:
    std::shared_ptr<Sequence> sequence_;
  };

 private:
  struct Layer {
    // As many entries as the model's longest sequence has blocks, so that they never move under a running pass.
    std::vector<DeviceMemory> blocks;
    std::vector<float*> keys;
    std::vector<float*> values;
    int written = 0;
  };

  int64_t block_floats() const;
  void check_unused(const char* what) const;
  void reserve_block(Layer& layer, size_t block);
  // Positions of one block that a range covers: visit(block, first in the block, first in the range, how many).
  template <typename Visit>
  void for_each_run(int position, int rows, Visit visit) const;
  // Where a range's keys and values lie on the device.
  std::vector<SpacedRows> places(const Layer& layer, int position, int rows) const;
  // A range's keys and values, one head of one position at a time, in the order of places(): visit(key and not value, where it stands in
  // the range's rows of all heads, in bytes).
  template <typename Visit>
  void for_each_head(int position, int rows, Visit visit) const;

  std::shared_ptr<Model> model_;
  mutable std::mutex mutex_;  // guards the blocks' existence and `written`
  std::vector<Layer> layers_;
  std::atomic<int> uses_ = 0;
};

}  // namespace odmoe
