// Reads through io_uring, where the build has liburing and the kernel lets us.
#include "storage_queue.h"

#if defined(ODMOE_IO_URING)
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

namespace odmoe {
namespace {

constexpr uint64_t kWakeTag = UINT64_MAX;
constexpr uint64_t kNoTag = UINT64_MAX - 1;
// Entries beside the reads: the poll that wakes, and one that a refused submit may have left.
constexpr unsigned kSpareEntries = 2;

std::string reason(const char* doing, int error) { return std::string(doing) + " failed: " + std::strerror(error); }

class RingQueue : public StorageQueue {
 public:
  explicit RingQueue(int depth) { ended_.reserve(static_cast<size_t>(depth)); }
  ~RingQueue() override {
    if (ring_made_) io_uring_queue_exit(&ring_);
    if (event_ >= 0) ::close(event_);
  }
  RingQueue(const RingQueue&) = delete;
  RingQueue& operator=(const RingQueue&) = delete;

  // Returns why the kernel refuses; empty where it does not.
  std::string open(int depth) {
    const int made = io_uring_queue_init(static_cast<unsigned>(depth) + kSpareEntries, &ring_, 0);
    if (made < 0) return reason("io_uring_setup", -made);
    ring_made_ = true;
    io_uring_probe* const probe = io_uring_get_probe_ring(&ring_);
    const bool can_read = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ);
    io_uring_free_probe(probe);
    if (!can_read) return "the kernel's io_uring is too old to read with";
    event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_ < 0) return reason("eventfd", errno);
    if (!watch_event()) return "io_uring_enter is refused";
    return "";
  }

  StorageWay way() const override { return StorageWay::io_uring; }

  void submit(const QueuedRead& read) override {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    if (entry != nullptr) {
      io_uring_prep_read(entry, read.descriptor, read.out, static_cast<unsigned>(read.bytes), read.offset);
      entry->user_data = read.tag;
      // Else the kernel would copy what the page cache holds before it takes the next read.
      if (!read.direct) entry->flags |= IOSQE_ASYNC;
      if (submit_entries()) return;
      // The kernel has not looked at it: it becomes an entry that does nothing.
      io_uring_prep_nop(entry);
      entry->user_data = kNoTag;
    }
    const ssize_t got = ::pread(read.descriptor, read.out, read.bytes, static_cast<off_t>(read.offset));
    ended_.push_back({read.tag, got < 0 ? -static_cast<int64_t>(errno) : static_cast<int64_t>(got)});
  }

  size_t wait(std::span<QueuedReadEnd> ends) override {
    size_t count = 0;
    while (count < ends.size() && !ended_.empty()) {
      ends[count++] = ended_.back();
      ended_.pop_back();
    }
    bool woken = !event_watched_ && !watch_event();
    io_uring_cqe* completion = nullptr;
    while (count < ends.size()) {
      const bool blocks = count == 0 && !woken;
      const int got = blocks ? io_uring_wait_cqe(&ring_, &completion) : io_uring_peek_cqe(&ring_, &completion);
      if (got < 0 && !blocks) break;
      if (got < 0) continue;  // EINTR
      if (completion->user_data == kWakeTag) {
        woken = true;
        see_wake();
      } else if (completion->user_data != kNoTag) {
        ends[count++] = {static_cast<size_t>(completion->user_data), completion->res};
      }
      io_uring_cqe_seen(&ring_, completion);
    }
    return count;
  }

  void wake() override {
    if (wake_pending_.exchange(true)) return;
    const uint64_t one = 1;
    // It cannot fail: the counter is far from full.
    [[maybe_unused]] const ssize_t written = ::write(event_, &one, sizeof one);
  }

 private:
  // Whether the kernel has taken what is in the submission queue.
  bool submit_entries() {
    int taken = 0;
    do {
      taken = io_uring_submit(&ring_);
    } while (taken == -EINTR);
    return taken >= 1 && io_uring_sq_ready(&ring_) == 0;
  }

  // A poll, as it writes to no memory of ours when the ring goes while it is under way.
  bool watch_event() {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) return false;
    io_uring_prep_poll_add(entry, event_, POLLIN);
    entry->user_data = kWakeTag;
    event_watched_ = submit_entries();
    if (event_watched_) return true;
    io_uring_prep_nop(entry);
    entry->user_data = kNoTag;
    return false;
  }

  // The flag falls before the caller looks at what has changed: a wake() after that writes again.
  void see_wake() {
    uint64_t wakes = 0;
    [[maybe_unused]] const ssize_t got = ::read(event_, &wakes, sizeof wakes);
    wake_pending_.store(false);
    event_watched_ = false;
    static_cast<void>(watch_event());
  }

  io_uring ring_ = {};
  bool ring_made_ = false;
  int event_ = -1;
  bool event_watched_ = false;
  std::atomic<bool> wake_pending_ = false;
  std::vector<QueuedReadEnd> ended_;  // that were read without the ring
};

}  // namespace

std::unique_ptr<StorageQueue> make_ring_queue(int depth, std::string& refusal) {
  auto queue = std::make_unique<RingQueue>(depth);
  refusal = queue->open(depth);
  if (!refusal.empty()) return nullptr;
  return queue;
}

}  // namespace odmoe

#else

namespace odmoe {

std::unique_ptr<StorageQueue> make_ring_queue(int, std::string& refusal) {
  refusal = "odmoe was built without liburing";
  return nullptr;
}

}  // namespace odmoe
#endif
