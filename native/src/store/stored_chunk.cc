#include "stored_chunk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "odmoe/error.h"

namespace odmoe {
namespace {

// Small enough that the checksum finds in the cache what the read has just put there.
constexpr uint64_t kReadPieceBytes = 256 * 1024;

[[noreturn]] void throw_storage_failed(const std::string& path, const std::string& doing) {
  throw Error("STORAGE_FAILED", doing + " " + path + " failed: " + std::strerror(errno) +
                                    "; check that the file is there and readable and that its disk is sound");
}

std::string hexadecimal(uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

}  // namespace

void throw_corrupt(const ChunkLocation& chunk, const std::string& what) {
  const std::string where = chunk.path + " at offset " + std::to_string(chunk.offset_bytes) + ": " + what;
  if (chunk.crc32c.has_value()) {
    throw Error("PACK_CORRUPT", where + "; run `odmoe inspect --verify` on the pack, and copy or pack it again");
  }
  throw Error("MODEL_CORRUPT", where + "; download the checkpoint again");
}

File::File(const std::string& path) : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw_storage_failed(path, "opening");
}

File::~File() { ::close(descriptor_); }

uint64_t File::read_at(uint64_t offset, uint8_t* out, uint64_t count) const {
  uint64_t done = 0;
  while (done < count) {
    const ssize_t got = ::pread(descriptor_, out + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_storage_failed(path_, "reading");
    if (got == 0) break;
    done += static_cast<uint64_t>(got);
  }
  return done;
}

void StoredChunk::read(uint8_t* out, uint64_t count) {
  if (count > chunk_.stored_bytes - done_) throw_corrupt(chunk_, "the chunk is shorter than its contents");
  while (count > 0) {
    const uint64_t piece = std::min(count, kReadPieceBytes);
    const uint64_t got = file_.read_at(chunk_.offset_bytes + done_, out, piece);
    if (got < piece) {
      throw_corrupt(chunk_, "the file ends after " + std::to_string(done_ + got) + " of the " +
                                std::to_string(chunk_.stored_bytes) + " bytes that should be there");
    }
    if (chunk_.crc32c.has_value()) crc_ = crc32c(crc_, out, piece);
    done_ += piece;
    out += piece;
    count -= piece;
  }
}

void StoredChunk::finish() {
  std::array<uint8_t, 4096> rest;
  while (done_ < chunk_.stored_bytes) {
    read(rest.data(), std::min<uint64_t>(rest.size(), chunk_.stored_bytes - done_));
  }
  if (chunk_.crc32c.has_value() && crc_ != *chunk_.crc32c) {
    throw_corrupt(chunk_, "the checksum of " + std::to_string(chunk_.stored_bytes) + " bytes is " + hexadecimal(crc_) +
                              ", the manifest says " + hexadecimal(*chunk_.crc32c));
  }
}

}  // namespace odmoe
