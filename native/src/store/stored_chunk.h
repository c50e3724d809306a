// The stored bytes of one chunk, read from its file in order and summed up on the way.
#pragma once
#include <cstdint>
#include <string>

#include "odmoe/store.h"

namespace odmoe {

// Throws PACK_CORRUPT, or MODEL_CORRUPT for a chunk that has no checksum and so is no pack's.
[[noreturn]] void throw_corrupt(const ChunkLocation& chunk, const std::string& what);

// Throws PACK_CORRUPT or MODEL_CORRUPT where the checksum of the stored bytes is not the one that the chunk has.
void check_crc(const ChunkLocation& chunk, uint32_t crc);
// The file has only so many of the chunk's bytes.
[[noreturn]] void throw_truncated(const ChunkLocation& chunk, uint64_t bytes);

// An open file; closed when it goes.
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
  // Of who reads it otherwise than by read_at: for reads only, and as long as this is.
  int descriptor() const { return descriptor_; }
  // Whether a read that failed with this errno value is worth another try, which goes through the page cache then.
  bool leave_direct_after(int error) const;
  uint64_t bytes() const;  // throws STORAGE_FAILED
  [[noreturn]] void throw_read_failed(int error) const;
  // Whether the path still leads to this file, and not to another that has taken its place.
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
  // The next `count` stored bytes. Throws corrupt when the chunk or its file has fewer, STORAGE_FAILED.
  void read(uint8_t* out, uint64_t count);
  // Reads what is left and compares the checksum.
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
