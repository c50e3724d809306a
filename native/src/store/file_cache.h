// Files that are read again and again, kept open. For one thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stored_chunk.h"

namespace odmoe {

// Of the open files the one not used for longest makes room for a new one.
inline constexpr size_t kOpenFileLimit = 64;

class FileCache {
 public:
  explicit FileCache(bool direct) : direct_(direct) { files_.reserve(kOpenFileLimit); }

  // A file that has taken the place of the one that was open is opened in its stead. Who reads keeps what is returned until the read
  // has ended. Throws STORAGE_FAILED.
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
