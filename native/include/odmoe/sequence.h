// What the layers keep of one sequence: keys and values of attention, states and rows of recurrences. Memory is taken from the device as
// positions are used. A sequence and its forks share memory until one of them writes there.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <variant>
#include <vector>

#include "odmoe/key_value_cache.h"
#include "odmoe/model.h"
#include "odmoe/recurrence_log.h"

namespace odmoe {

class Sequence : public LiveCount<Sequence> {
 public:
  explicit Sequence(std::shared_ptr<Model> model);
  // A sequence that begins as the first `length` positions of this one; takes no memory. Throws INTERNAL where this one is shorter or
  // could not be cut back to that length, and while a pass runs on it.
  std::shared_ptr<Sequence> fork(int length) const;

  // Positions written in every layer.
  int length() const;
  // The least length but 0 that the sequence can be cut back to; 0 without recurrent layers.
  int oldest_position() const;
  // Bytes of so many rows of a layer. Throws INTERNAL for what the model has no layer or no positions for.
  uint64_t row_bytes(int layer, int position, int rows) const;
  // FP32 rows [position, position + rows) of one layer, as native/addon.d.ts says. Throws INTERNAL for positions not written, and for
  // those of a recurrent layer that are too old.
  void read_rows(int layer, int position, int rows, std::span<uint8_t> out) const;
  // Overwrites rows, or appends right behind the highest written one. Throws INTERNAL for a gap, for rows of a recurrent layer that are
  // too old, or while a pass that works on the sequence runs; DEVICE_OUT_OF_MEMORY.
  void write_rows(int layer, int position, int rows, std::span<const uint8_t> in);
  // Memory that a pass would take of the device to write positions [position, end) of all layers.
  uint64_t bytes_to_write(int position, int end) const;
  // Forgets positions >= length; their memory stays with the sequence. Throws INTERNAL while a pass runs on it, and for a length between
  // 0 and the oldest position.
  void truncate(int length);

  // For passes. reserve: memory of its own for positions [position, end) in all layers (all or nothing). written: positions < end of a
  // layer are there.
  void reserve(int position, int end);
  void written(int layer, int end);
  // Throws INTERNAL where the sequence has been forked since memory was reserved for these positions.
  void check_own_cache(int layer, int position, int end) const;
  KeyValueLayer cache(int layer) const { return std::get<KeyValueCache>(layers_[static_cast<size_t>(layer)]).layer(); }
  // Its operators run under a Use; what moves or frees rows goes by the two calls below.
  RecurrenceLog& recurrence(int layer) { return std::get<RecurrenceLog>(layers_[static_cast<size_t>(layer)]); }
  void move_checkpoint(int layer);
  // Forgets what recurrent layers know: where a pass begins at position 0 anew, or has left a checkpoint unfinished.
  void restart_recurrences();
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
  using Layer = std::variant<KeyValueCache, RecurrenceLog>;

  Sequence(std::shared_ptr<Model> model, std::vector<Layer> layers);

  void check_unused(const char* what) const;
  void check_kept(const char* what, int length) const;
  static int written_of(const Layer& layer);
  static int oldest_of(const Layer& layer);
  static void check_not_older(const Layer& layer, int number, int position);

  std::shared_ptr<Model> model_;
  mutable std::mutex mutex_;  // guards what layers have: memory, rows written, checkpoints
  std::vector<Layer> layers_;
  std::atomic<int> uses_ = 0;
};

}  // namespace odmoe
