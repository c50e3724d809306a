// Reads the ranges of operations in limited steps, so that a load that becomes urgent meanwhile need not wait long. For one thread,
// except wake().
#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "../store/file_cache.h"
#include "load_schedule.h"
#include "piece_recovery.h"
#include "storage_queue.h"

namespace odmoe {

// Most bytes in flight at a time, and most bytes of one read.
inline constexpr uint64_t kFlightBytes = 4 * 1024 * 1024;
inline constexpr uint64_t kLargestReadBytes = 2 * 1024 * 1024;
inline constexpr uint64_t kSmallestReadBytes = 512 * 1024;
inline uint64_t read_go_bytes(int depth) {
  return std::clamp(kFlightBytes / static_cast<uint64_t>(depth), kSmallestReadBytes, kLargestReadBytes);
}

struct ReadWork {
  const TensorSource* source = nullptr;
  const TensorPlan* plan = nullptr;
  uint32_t piece = 0;
  Part part = Part::exponents;
  HolderMemory memory = {};
  TensorProgress::Position position;  // where the last step ended
};

struct ReadGo {
  TensorProgress::Position position;
  bool finished = false;
  uint64_t useful_bytes = 0;
};

struct ReadGoEnd {
  size_t tag = 0;
  ReadGo go;
  // STORAGE_FAILED, PACK_CORRUPT or MODEL_CORRUPT; null: the step was read.
  std::exception_ptr error;
};

class StorageReader {
 public:
  StorageReader(std::unique_ptr<StorageQueue> queue, int depth, bool direct);

  // Begins a step of the work. `tag`: below the depth, and not the tag of a step in flight. The objects to which `work` points must
  // stay until the step has ended.
  void begin(size_t tag, const ReadWork& work);
  // Waits until a step has ended or wake() is called. The result is valid until the next call.
  std::span<const ReadGoEnd> wait();
  // May be called from any thread.
  void wake() { queue_->wake(); }

  // True if a file was read through the page cache although direct reads were requested.
  bool direct_refused() const { return direct_refused_; }

 private:
  struct Flight {
    ReadWork work;
    std::shared_ptr<const File> file;
    uint64_t count = 0;   // bytes of the step
    uint64_t done = 0;    // bytes of the step that have been read
    int fruitless = 0;    // consecutive reads that gave nothing
    bool direct = false;  // the read in flight is direct
  };

  const FileRange& range_of(const ReadWork& work) const;
  void submit(size_t tag);
  static bool try_again(const Flight& flight, int error);
  // True if the step has ended; otherwise its rest has been submitted.
  bool advance(size_t tag, int64_t result);
  ReadGo end_of(const Flight& flight) const;
  void add_end(size_t tag, const ReadGo& go, std::exception_ptr error);

  std::unique_ptr<StorageQueue> queue_;
  FileCache files_;
  uint64_t go_bytes_;
  bool direct_;
  bool direct_refused_ = false;
  std::vector<Flight> flights_;  // by tag
  std::vector<ReadGoEnd> ends_;
  std::vector<ReadGoEnd> told_;
};

}  // namespace odmoe
