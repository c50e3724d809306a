#include "parent_process.h"

#include <unistd.h>

#if defined(__linux__)
#include <sys/prctl.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "odmoe/error.h"
#endif

namespace odmoe {

#if defined(__linux__)
namespace {

pid_t parent_at_start = 0;

}  // namespace

void remember_parent() { parent_at_start = getppid(); }

void exit_with_parent() {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    throw Error(ErrorCode::internal, std::string("prctl(PR_SET_PDEATHSIG) failed: ") + std::strerror(errno));
  }
  // The parent may have died between the two calls, too early for the signal.
  if (getppid() != parent_at_start) _exit(1);
}
#else
void remember_parent() {}
void exit_with_parent() {}
#endif

}  // namespace odmoe
