#include "odmoe/service_notice.h"

#if defined(__linux__)
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#endif

namespace odmoe {

#if defined(__linux__)
std::string send_service_notice(const std::string& address, const std::string& message) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (address.empty() || address.size() >= sizeof(to.sun_path)) return "the address of the socket is empty or too long";
  std::memcpy(to.sun_path, address.data(), address.size());
  // An abstract name begins with a zero byte, and ends where the length says.
  if (address.front() == '@') to.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
  const int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return std::strerror(errno);
  const ssize_t sent = sendto(descriptor, message.data(), message.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&to), length);
  std::string reason;
  if (sent < 0) reason = std::strerror(errno);
  close(descriptor);
  return reason;
}
#else
std::string send_service_notice(const std::string&, const std::string&) { return "this system has no such socket"; }
#endif

}  // namespace odmoe
