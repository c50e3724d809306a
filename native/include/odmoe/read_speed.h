// How fast this machine's storage gives a file.
#pragma once
#include <cstdint>
#include <string>

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

}  // namespace odmoe
