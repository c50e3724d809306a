#include "file_lock.h"

#include <sys/file.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "odmoe/error.h"

namespace odmoe {

bool lock_file(int file, bool is_shared) {
  while (flock(file, (is_shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) throw Error(ErrorCode::storage_failed, std::string("flock failed: ") + std::strerror(errno));
  }
  return true;
}

}  // namespace odmoe
