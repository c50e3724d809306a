#include "core_files.h"

#if defined(__linux__)
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "odmoe/error.h"
#endif

namespace odmoe {

#if defined(__linux__)
void leave_no_core() {
  const rlimit none{0, 0};
  if (setrlimit(RLIMIT_CORE, &none) != 0) {
    throw Error(ErrorCode::internal, std::string("setrlimit(RLIMIT_CORE) failed: ") + std::strerror(errno));
  }
  // The limit does not hold where a program collects core dumps (a core_pattern that begins with "|"). PR_SET_DUMPABLE would
  // stop that, too, but it also takes /proc/self/fd away from a daemon that is not root.
  const int filter = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
  if (filter < 0) return;
  const ssize_t written = write(filter, "0", 1);
  close(filter);
  if (written != 1) throw Error(ErrorCode::internal, "/proc/self/coredump_filter cannot be written");
}
#else
void leave_no_core() {}
#endif

}  // namespace odmoe
