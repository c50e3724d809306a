// The reading of one operation's ranges, a go at a time, so that what has become urgent meanwhile need not wait long. For one thread.
#pragma once
#include <cstdint>
#include <string>

#include "../store/file_cache.h"
#include "load_schedule.h"
#include "piece_recovery.h"
#include "storage_pacer.h"

namespace odmoe {

// Bytes that are read in one go.
inline constexpr uint64_t kReadGoBytes = 2 * 1024 * 1024;

struct ReadWork {
  const TensorSource* source = nullptr;
  const TensorPlan* plan = nullptr;
  uint32_t piece = 0;
  Part part = Part::exponents;
  HolderMemory memory = {};
  TensorProgress::Position position;  // where the last go ended
};

struct ReadGo {
  TensorProgress::Position position;
  bool finished = false;
  uint64_t useful_bytes = 0;
  // When storage that is held back would have come to the end of it; zero where it is not held back.
  StoragePacer::Clock::time_point end{};
};

class StorageReader {
 public:
  StorageReader(bool direct, double bytes_per_s) : files_(direct), pacer_(bytes_per_s), direct_(direct) {}

  // `after_idle`: there was nothing to read before. Throws STORAGE_FAILED, PACK_CORRUPT or MODEL_CORRUPT.
  ReadGo read(const ReadWork& work, bool after_idle);

  // Whether a file was read through the page cache although it should not have been.
  bool direct_refused() const { return direct_refused_; }

 private:
  uint64_t read_range(const ReadWork& work, const FileRange& range, uint64_t done, uint64_t limit);

  FileCache files_;
  StoragePacer pacer_;
  bool direct_;
  bool direct_refused_ = false;
};

}  // namespace odmoe
