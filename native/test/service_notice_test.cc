// Sends notices to real datagram sockets, as a service manager has them.
#include "odmoe/service_notice.h"

#if defined(__linux__)
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "native_tests.h"

namespace odmoe::test {
namespace {

// A datagram socket at the address, closed at the end.
class Receiver {
 public:
  explicit Receiver(const std::string& address) : descriptor_(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {
    sockaddr_un own{};
    own.sun_family = AF_UNIX;
    std::memcpy(own.sun_path, address.data(), address.size());
    if (address.front() == '@') own.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
    check(bind(descriptor_, reinterpret_cast<sockaddr*>(&own), length) == 0, "the test's socket is bound");
  }
  ~Receiver() { close(descriptor_); }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // The message that has come; empty: none has.
  std::string take() const {
    std::string text(256, '\0');
    const ssize_t size = recv(descriptor_, text.data(), text.size(), 0);
    text.resize(size < 0 ? 0 : static_cast<size_t>(size));
    return text;
  }

 private:
  int descriptor_;
};

std::string path_of_this_process(const char* name) { return "/tmp/odmoe-notice-" + std::to_string(getpid()) + name; }

void arrives(const std::string& address) {
  const Receiver receiver(address);
  check(send_service_notice(address, "READY=1\nSTATUS=waits for main").empty(), "the notice is sent");
  check(receiver.take() == "READY=1\nSTATUS=waits for main", "the notice arrives whole");
  check(receiver.take().empty(), "the notice arrives once");
}

void arrives_at_a_path() {
  const std::string path = path_of_this_process(".sock");
  arrives(path);
  unlink(path.c_str());
}

void arrives_in_the_abstract_namespace() { arrives("@" + path_of_this_process("")); }

void says_why_not() {
  check(!send_service_notice(path_of_this_process("-nobody"), "READY=1").empty(), "nobody listens");
  check(!send_service_notice("", "READY=1").empty(), "no address");
  check(!send_service_notice("/" + std::string(200, 'a'), "READY=1").empty(), "an address that is too long");
}

// A service manager that does not read must not stop the daemon.
void never_waits() {
  const std::string address = "@" + path_of_this_process("-full");
  const Receiver receiver(address);
  std::string reason;
  for (int sent = 0; sent < 100000 && reason.empty(); sent++) reason = send_service_notice(address, std::string(200, 'x'));
  check(!reason.empty(), "a full socket refuses");
}

}  // namespace

void add_service_notice_cases(std::vector<Case>& cases) {
  cases.push_back({"service notice: arrives at a path", arrives_at_a_path});
  cases.push_back({"service notice: arrives in the abstract namespace", arrives_in_the_abstract_namespace});
  cases.push_back({"service notice: says why it could not be sent", says_why_not});
  cases.push_back({"service notice: never waits", never_waits});
}

}  // namespace odmoe::test
#else
#include "native_tests.h"

namespace odmoe::test {
void add_service_notice_cases(std::vector<Case>&) {}
}  // namespace odmoe::test
#endif
