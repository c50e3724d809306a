#include "stored_chunk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "odmoe/error.h"

namespace odmoe {
namespace {

// Small enough that the bytes of a read are still in the cache when the checksum reads them.
constexpr uint64_t kReadPieceBytes = 256 * 1024;

#if defined(O_DIRECT)
constexpr int kDirectFlag = O_DIRECT;
#else
constexpr int kDirectFlag = 0;
#endif

[[noreturn]] void throw_storage_failed(const std::string& path, const std::string& doing) {
  throw Error(ErrorCode::storage_failed, doing + " " + path + " failed: " + std::strerror(errno) +
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
    throw Error(ErrorCode::pack_corrupt, where + "; run `odmoe inspect --verify` on the pack, and copy or pack it again");
  }
  throw Error(ErrorCode::model_corrupt, where + "; download the checkpoint again");
}

void throw_truncated(const ChunkLocation& chunk, uint64_t bytes) {
  throw_corrupt(chunk, "the file ends after " + std::to_string(bytes) + " of the " + std::to_string(chunk.stored_bytes) +
                           " bytes that should be there");
}

void check_crc(const ChunkLocation& chunk, uint32_t crc) {
  if (!chunk.crc32c.has_value() || crc == *chunk.crc32c) return;
  throw_corrupt(chunk, "the checksum of " + std::to_string(chunk.stored_bytes) + " bytes is " + hexadecimal(crc) +
                           ", the manifest says " + hexadecimal(*chunk.crc32c));
}

File::File(const std::string& path, bool direct) : path_(path), direct_(direct && kDirectFlag != 0) {
  const int flags = O_RDONLY | O_CLOEXEC;
  descriptor_ = ::open(path.c_str(), direct_ ? flags | kDirectFlag : flags);
  if (descriptor_ < 0 && direct_ && errno == EINVAL) {
    direct_ = false;
    descriptor_ = ::open(path.c_str(), flags);
  }
  if (descriptor_ < 0) throw_storage_failed(path, "opening");
}

File::~File() { ::close(descriptor_); }

bool File::is_current() const {
  struct stat opened = {};
  struct stat named = {};
  return ::fstat(descriptor_, &opened) == 0 && ::stat(path_.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

bool File::leave_direct() const {
  if (!direct_) return false;
  direct_ = false;
  const int flags = ::fcntl(descriptor_, F_GETFL);
  return flags >= 0 && ::fcntl(descriptor_, F_SETFL, flags & ~kDirectFlag) == 0;
}

bool File::leave_direct_after(int error) const {
  // EFAULT: the memory belongs to a device's driver, and a direct read cannot use its pages (pinned memory on Tegra).
  return (error == EINVAL || error == EFAULT) && leave_direct();
}

uint64_t File::bytes() const {
  struct stat opened = {};
  if (::fstat(descriptor_, &opened) != 0) throw_storage_failed(path_, "asking for the size of");
  return static_cast<uint64_t>(opened.st_size);
}

void File::throw_read_failed(int error) const {
  errno = error;
  throw_storage_failed(path_, "reading");
}

uint64_t File::read_at(uint64_t offset, uint8_t* out, uint64_t count) const {
  uint64_t done = 0;
  while (done < count) {
    const ssize_t got = ::pread(descriptor_, out + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && leave_direct_after(errno)) continue;
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
    if (got < piece) throw_truncated(chunk_, done_ + got);
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
  check_crc(chunk_, crc_);
}

}  // namespace odmoe
