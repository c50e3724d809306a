// The caches of all layers for one sequence: keys and values of attention, states and rows of recurrences. Memory is taken from the
// device as positions are used. A sequence and its forks share memory until one of them writes there.
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
  // cannot be truncated to that length, and while a pass runs on it.
  std::shared_ptr<Sequence> fork(int length) const;

  // Number of positions that are written in every layer.
  int length() const;
  // The least length, other than 0, to which truncate() can shorten the sequence; 0 without recurrent layers.
  int oldest_position() const;
  // Bytes of `rows` rows of a layer. Throws INTERNAL for a layer or positions that the model does not have.
  uint64_t row_bytes(int layer, int position, int rows) const;
  // FP32 rows [position, position + rows) of one layer, in the layout of native/addon.d.ts. Throws INTERNAL for positions that are
  // not written, and for positions of a recurrent layer that are too old.
  void read_rows(int layer, int position, int rows, std::span<uint8_t> out) const;
  // Overwrites rows, or appends right behind the highest written one. Throws INTERNAL for a gap, for rows of a recurrent layer that are
  // too old, or while a pass that works on the sequence runs; DEVICE_OUT_OF_MEMORY.
  void write_rows(int layer, int position, int rows, std::span<const uint8_t> in);
  // Device memory that a pass would take to write positions [position, end) in all layers.
  uint64_t bytes_to_write(int position, int end) const;
  // Forgets positions >= length; their memory stays with the sequence. Throws INTERNAL while a pass runs on it, and for a length between
  // 0 and the oldest position.
  void truncate(int length);

  // For passes. reserve: takes unshared memory for positions [position, end) in all layers (all or none). written: positions < end
  // of a layer have been written.
  void reserve(int position, int end);
  void written(int layer, int end);
  // Throws INTERNAL if the sequence was forked after memory was reserved for these positions.
  void check_own_cache(int layer, int position, int end) const;
  KeyValueLayer cache(int layer) const { return std::get<KeyValueCache>(layers_[static_cast<size_t>(layer)]).layer(); }
  KeyValueLayer index_cache(int layer) const { return std::get<KeyValueCache>(layers_[static_cast<size_t>(layer)]).index_layer(); }
  // The layer's operators run under a Use; only the two calls below may move or free rows.
  RecurrenceLog& recurrence(int layer) { return std::get<RecurrenceLog>(layers_[static_cast<size_t>(layer)]); }
  void move_saved_state(int layer);
  // Clears the recurrent layers: for a pass that begins again at position 0, or after a pass that left a saved state unfinished.
  void restart_recurrences();
  const Model* model() const { return model_.get(); }

  // A call of a pass that works on the sequence, from its request until it is done.
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
  mutable std::mutex mutex_;  // guards the layers' memory, written rows and saved states
  std::vector<Layer> layers_;
  std::atomic<int> uses_ = 0;
};

}  // namespace odmoe
