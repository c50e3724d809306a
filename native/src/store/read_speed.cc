#include "odmoe/read_speed.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>

#include "odmoe/error.h"

namespace odmoe {
namespace {

constexpr uint64_t kBlockBytes = 4096;
// About the bytes that a loader reads at a time.
constexpr uint64_t kReadBytes = uint64_t{4} << 20;
constexpr std::align_val_t kAlignment{kBlockBytes};

struct AlignedDelete {
  void operator()(uint8_t* bytes) const { ::operator delete[](bytes, kAlignment); }
};

[[noreturn]] void throw_failed(const std::string& path, const char* doing) {
  throw Error(ErrorCode::storage_failed, std::string(doing) + " " + path + " failed: " + std::strerror(errno) +
                                             "; check that the file is there and readable and that its disk is sound");
}

class MeasuredFile {
 public:
  explicit MeasuredFile(const std::string& path) : path_(path) {
#if defined(O_DIRECT)
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    direct_ = descriptor_ >= 0;
#endif
    if (!direct_) open_buffered();
  }
  ~MeasuredFile() { ::close(descriptor_); }
  MeasuredFile(const MeasuredFile&) = delete;
  MeasuredFile& operator=(const MeasuredFile&) = delete;

  bool direct() const { return direct_; }

  uint64_t read_at(uint64_t offset, uint8_t* out, uint64_t count) {
    ssize_t got = -1;
    do {
      got = ::pread(descriptor_, out, count, static_cast<off_t>(offset));
    } while (got < 0 && errno == EINTR);
    if (got < 0 && direct_ && errno == EINVAL) {
      // Some file systems open a file for direct reading and then refuse to read it so.
      ::close(descriptor_);
      open_buffered();
      return read_at(offset, out, count);
    }
    if (got < 0) throw_failed(path_, "reading");
    return static_cast<uint64_t>(got);
  }

 private:
  void open_buffered() {
    direct_ = false;
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) throw_failed(path_, "opening");
#if defined(F_NOCACHE)
    direct_ = ::fcntl(descriptor_, F_NOCACHE, 1) == 0;
#elif defined(POSIX_FADV_DONTNEED)
    ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
#endif
  }

  std::string path_;
  int descriptor_ = -1;
  bool direct_ = false;
};

}  // namespace

ReadSpeed measure_reads(const std::string& path, uint64_t bytes, double seconds) {
  MeasuredFile file(path);
  const std::unique_ptr<uint8_t[], AlignedDelete> buffer(new (kAlignment) uint8_t[kReadBytes]);
  const uint64_t whole = bytes / kBlockBytes * kBlockBytes;
  ReadSpeed speed;
  double spent = 0;
  for (uint64_t offset = 0; offset < whole && spent < seconds;) {
    const auto start = std::chrono::steady_clock::now();
    const uint64_t got = file.read_at(offset, buffer.get(), std::min(kReadBytes, whole - offset));
    spent += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    speed.read_bytes += got;
    offset += got;
    // A block is shorter only at the end of a file.
    if (got == 0 || got % kBlockBytes != 0) break;
  }
  if (speed.read_bytes == 0) throw Error(ErrorCode::internal, path + " is too small to measure reading with");
  speed.bytes_per_s = static_cast<double>(speed.read_bytes) / std::max(spent, 1e-9);
  speed.direct = file.direct();
  return speed;
}

}  // namespace odmoe
