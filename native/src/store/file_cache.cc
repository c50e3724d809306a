#include "file_cache.h"

#include <algorithm>

namespace odmoe {

std::shared_ptr<const File> FileCache::open(const std::string& path) {
  const auto found = std::find_if(files_.begin(), files_.end(), [&](const OpenFile& open) { return open.file->path() == path; });
  if (found != files_.end()) {
    if (found->file->is_current()) {
      found->last_use = ++uses_;
      return found->file;
    }
    files_.erase(found);
  }
  auto file = std::make_shared<const File>(path, direct_);
  if (files_.size() >= kOpenFileLimit) {
    files_.erase(std::min_element(files_.begin(), files_.end(),
                                  [](const OpenFile& left, const OpenFile& right) { return left.last_use < right.last_use; }));
  }
  files_.push_back({std::move(file), ++uses_});
  return files_.back().file;
}

}  // namespace odmoe
