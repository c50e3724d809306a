// Keeps files open that are read repeatedly. For one thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stored_chunk.h"

namespace odmoe {

// Most open files; beyond it the least recently used file is closed.
inline constexpr size_t kOpenFileLimit = 64;

class FileCache {
 public:
  explicit FileCache(bool direct) : direct_(direct) { files_.reserve(kOpenFileLimit); }

  // If another file has replaced the open one at this path, the new file is opened. A reader must keep the returned pointer until
  // its read has ended. Throws STORAGE_FAILED.
  std::shared_ptr<const File> open(const std::string& path);

 private:
  struct OpenFile {
    std::shared_ptr<const File> file;
    uint64_t last_use = 0;
  };

  bool direct_;
  uint64_t uses_ = 0;
  std::vector<OpenFile> files_;
};

}  // namespace odmoe
