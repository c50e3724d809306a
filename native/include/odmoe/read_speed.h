// How fast this machine's storage gives a file.
#pragma once
#include <cstdint>
#include <string>

#include "odmoe/expert_load.h"

namespace odmoe {

struct ReadSpeed {
  double bytes_per_s = 0;
  uint64_t read_bytes = 0;
  // Read past the page cache. Where the file system does not allow that, the cache is asked to forget the file first, which it may
  // not do: then this is a speed of memory.
  bool direct = false;
};

// Reads the file's first `bytes` (as many whole blocks of 4096 as there are) in order, one read at a time, for about `seconds`.
// Throws STORAGE_FAILED; INTERNAL for a file of less than one block.
ReadSpeed measure_reads(const std::string& path, uint64_t bytes, double seconds);

struct QueuedReadRequest {
  WantedStorageWay way = WantedStorageWay::automatic;
  int depth = 1;  // reads in flight at a time, 1 to kReadDepthLimit
  bool direct = false;
};

struct QueuedReadSpeed {
  double bytes_per_s = 0;
  uint64_t read_bytes = 0;
  StorageWay way = StorageWay::threads;
  bool direct = false;       // past the page cache
  std::string ring_refusal;  // why io_uring was wanted and is not used
};

// Reads the file's first `bytes` as the expert loader does, in order, over and over, for about `seconds`. Throws as measure_reads.
QueuedReadSpeed measure_queued_reads(const std::string& path, uint64_t bytes, const QueuedReadRequest& request, double seconds);

// Bytes a second that so many threads copy together with memcpy, from and to memory that no cache holds.
double measure_memory_copy(int threads, double seconds);

}  // namespace odmoe
