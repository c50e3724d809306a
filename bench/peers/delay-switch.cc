// A LAN in one process, for `odmoe bench peers`: an Ethernet switch between network namespaces, whose every card sends and receives at a
// rate, and whose frames take a time on their way. Kernels without netem have nothing of the kind.
//
//   delay-switch RATE_BITS_PER_S ONE_WAY_US NAMESPACE...
//
// Makes a TAP device "eth0" in each namespace, prints "up" when all are there, and runs until SIGTERM or SIGINT. Linux, root.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Address = std::array<unsigned char, 6>;

constexpr size_t kFrameLimit = 2048;
constexpr size_t kQueueLimit = 4096;  // frames that wait for a card; more are dropped, as a switch does
constexpr int kFramesAtOnce = 16;
// Preamble, checksum and gap, which a frame takes on the wire beside its bytes; no frame is shorter than the least.
constexpr size_t kWireOverheadBytes = 24;
constexpr size_t kLeastWireBytes = 84;

struct Frame {
  std::vector<unsigned char> bytes;
  Clock::time_point due;
};

struct Card {
  int file = -1;
  Clock::time_point sending_until{};
  Clock::time_point receiving_until{};
  std::deque<Frame> arriving;  // in the order in which they are due
  unsigned long dropped = 0;
};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "delay-switch: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

int open_card(const std::string& name) {
  const std::string path = "/var/run/netns/" + name;
  const int space = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (space < 0 || setns(space, CLONE_NEWNET) != 0) fail("cannot enter the namespace " + name);
  close(space);
  const int file = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) fail("cannot open /dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  std::strcpy(request.ifr_name, "eth0");
  if (ioctl(file, TUNSETIFF, &request) != 0) fail("cannot make eth0 in " + name);
  return file;
}

class Switch {
 public:
  Switch(double bits_per_s, std::chrono::nanoseconds one_way, int signals, std::vector<Card> cards)
      : bits_per_s_(bits_per_s), one_way_(one_way), signals_(signals), cards_(std::move(cards)) {}

  void run() {
    while (true) {
      deliver();
      if (!wait()) break;
      for (size_t port = 0; port < cards_.size(); ++port) receive(port);
    }
    for (const Card& card : cards_) std::fprintf(stderr, "delay-switch: %lu frames dropped\n", card.dropped);
  }

 private:
  std::chrono::nanoseconds wire_time(size_t bytes) const {
    const auto wire_bytes = static_cast<double>(std::max(bytes + kWireOverheadBytes, kLeastWireBytes));
    return std::chrono::nanoseconds(static_cast<long>(wire_bytes * 8e9 / bits_per_s_));
  }

  void deliver() {
    for (Card& card : cards_) {
      while (!card.arriving.empty() && card.arriving.front().due <= Clock::now()) {
        const Frame& frame = card.arriving.front();
        if (write(card.file, frame.bytes.data(), frame.bytes.size()) < 0) ++card.dropped;
        card.arriving.pop_front();
      }
    }
  }

  // Until a frame comes or is due. False: a signal asks to end.
  bool wait() {
    std::vector<pollfd> files{{signals_, POLLIN, 0}};
    auto next = Clock::time_point::max();
    for (const Card& card : cards_) {
      files.push_back({card.file, POLLIN, 0});
      if (!card.arriving.empty()) next = std::min(next, card.arriving.front().due);
    }
    timespec left{};
    if (next != Clock::time_point::max()) {
      const auto nanoseconds = std::max<long>(0, std::chrono::nanoseconds(next - Clock::now()).count());
      left = {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    }
    const bool forever = next == Clock::time_point::max();
    if (ppoll(files.data(), files.size(), forever ? nullptr : &left, nullptr) < 0 && errno != EINTR) fail("poll");
    return files[0].revents == 0;
  }

  void receive(size_t port) {
    std::array<unsigned char, kFrameLimit> bytes;
    for (int count = 0; count < kFramesAtOnce; ++count) {
      const ssize_t length = read(cards_[port].file, bytes.data(), bytes.size());
      if (length < 14) return;
      forward(port, {bytes.data(), bytes.data() + length});
    }
  }

  void forward(size_t from, const std::vector<unsigned char>& bytes) {
    Address to;
    Address source;
    std::copy_n(bytes.begin(), 6, to.begin());
    std::copy_n(bytes.begin() + 6, 6, source.begin());
    ports_[source] = from;
    Card& sender = cards_[from];
    const auto time = wire_time(bytes.size());
    sender.sending_until = std::max(sender.sending_until, Clock::now()) + time;
    const auto known = ports_.find(to);
    for (size_t port = 0; port < cards_.size(); ++port) {
      if (port == from || (known != ports_.end() && known->second != port)) continue;
      Card& receiver = cards_[port];
      if (receiver.arriving.size() >= kQueueLimit) {
        ++receiver.dropped;
        continue;
      }
      // A frame goes on as it comes in: alone it takes its time on the wire once, behind another's it waits for that one.
      receiver.receiving_until = std::max(receiver.receiving_until + time, sender.sending_until);
      receiver.arriving.push_back({bytes, receiver.receiving_until + one_way_});
    }
  }

  const double bits_per_s_;
  const std::chrono::nanoseconds one_way_;
  const int signals_;
  std::vector<Card> cards_;
  std::map<Address, size_t> ports_;
};

// A file that can be read when SIGTERM or SIGINT has come, however soon before a wait.
int open_signals() {
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  sigprocmask(SIG_BLOCK, &ending, nullptr);
  const int file = signalfd(-1, &ending, SFD_CLOEXEC);
  if (file < 0) fail("cannot open signals");
  return file;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) {
    std::fprintf(stderr, "usage: delay-switch RATE_BITS_PER_S ONE_WAY_US NAMESPACE NAMESPACE...\n");
    return 2;
  }
  std::vector<Card> cards(static_cast<size_t>(count - 3));
  for (size_t port = 0; port < cards.size(); ++port) cards[port].file = open_card(arguments[port + 3]);
  // Sleeps end when they should, not 50 us later.
  prctl(PR_SET_TIMERSLACK, 1);
  const int signals = open_signals();
  std::printf("up\n");
  std::fflush(stdout);
  const auto one_way = std::chrono::nanoseconds(static_cast<long>(std::atof(arguments[2]) * 1000));
  Switch(std::atof(arguments[1]), one_way, signals, std::move(cards)).run();
  return 0;
}
