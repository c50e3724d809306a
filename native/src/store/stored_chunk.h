// Reads the stored bytes of one chunk from its file in order, and computes their checksum meanwhile.
#pragma once
#include <cstdint>
#include <string>

#include "odmoe/store.h"

namespace odmoe {

// Throws PACK_CORRUPT, or MODEL_CORRUPT for a chunk without checksum, which is not from a pack.
[[noreturn]] void throw_corrupt(const ChunkLocation& chunk, const std::string& what);

// Throws PACK_CORRUPT or MODEL_CORRUPT if the checksum of the stored bytes differs from the chunk's.
void check_crc(const ChunkLocation& chunk, uint32_t crc);
// Throws because the file has only `bytes` bytes of the chunk.
[[noreturn]] void throw_truncated(const ChunkLocation& chunk, uint64_t bytes);

// An open file; the destructor closes it.
class File {
 public:
  // `direct`: reads go past the page cache, as long as the file system agrees; their offsets, lengths and addresses are then
  // multiples of 4096. Throws STORAGE_FAILED.
  explicit File(const std::string& path, bool direct = false);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  // Up to `count` bytes at `offset`; fewer only at the end of the file. Throws STORAGE_FAILED.
  uint64_t read_at(uint64_t offset, uint8_t* out, uint64_t count) const;
  const std::string& path() const { return path_; }
  bool is_direct() const { return direct_; }
  // For reads without read_at: use it only for reads, and only while this object exists.
  int descriptor() const { return descriptor_; }
  // True if a read that failed with this errno value should be tried again; it then goes through the page cache.
  bool leave_direct_after(int error) const;
  uint64_t bytes() const;  // throws STORAGE_FAILED
  [[noreturn]] void throw_read_failed(int error) const;
  // True if the path still leads to this file, and not to another file that replaced it.
  bool is_current() const;

 private:
  bool leave_direct() const;

  std::string path_;
  mutable bool direct_;  // some file systems refuse only at the first read
  int descriptor_;
};

class StoredChunk {
 public:
  StoredChunk(const File& file, const ChunkLocation& chunk) : file_(file), chunk_(chunk) {}
  // Reads the next `count` stored bytes. Throws PACK_CORRUPT or MODEL_CORRUPT when the chunk or its file has fewer, and
  // STORAGE_FAILED.
  void read(uint8_t* out, uint64_t count);
  // Reads the remaining bytes and compares the checksum.
  void finish();
  uint64_t read_bytes() const { return done_; }
  const ChunkLocation& location() const { return chunk_; }

 private:
  const File& file_;
  const ChunkLocation& chunk_;
  uint64_t done_ = 0;
  uint32_t crc_ = 0;
};

}  // namespace odmoe
