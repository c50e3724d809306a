// Measures how fast this machine reads a file from storage.
#pragma once
#include <cstdint>
#include <string>

#include "odmoe/expert_load.h"

namespace odmoe {

struct ReadSpeed {
  double bytes_per_s = 0;
  uint64_t read_bytes = 0;
  // The file was read past the page cache. Where the file system does not allow that, the system is first asked to drop the file
  // from the cache; if it does not, the result is the speed of memory.
  bool direct = false;
};

// Reads the file's first `bytes` (whole blocks of 4096 only) in order, one read at a time, for about `seconds`. Throws
// STORAGE_FAILED; INTERNAL for a file of less than one block.
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

// Reads the file's first `bytes` as the expert loader does, in order, repeatedly, for about `seconds`. Throws the same errors as
// measure_reads.
QueuedReadSpeed measure_queued_reads(const std::string& path, uint64_t bytes, const QueuedReadRequest& request, double seconds);

// Measures the bytes per second that `threads` threads copy together with memcpy, from and to memory that is in no cache.
double measure_memory_copy(int threads, double seconds);

}  // namespace odmoe
