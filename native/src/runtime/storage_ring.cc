// Reads through io_uring, where the build has liburing and the kernel allows it.
#include "storage_queue.h"

#if defined(ODMOE_IO_URING)
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

namespace odmoe {
namespace {

constexpr uint64_t kNoTag = UINT64_MAX;
// Room beside the reads, for an entry that a refused submit may have left.
constexpr unsigned kSpareEntries = 1;

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

  // Returns the reason of a refusal by the kernel; empty where there is none.
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
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) return "io_uring has no room for an entry";
    make_nothing(entry);
    return submit_entries() ? "" : "io_uring_enter is refused";
  }

  StorageWay way() const override { return StorageWay::io_uring; }

  void submit(const QueuedRead& read) override {
    if (io_uring_sqe* const entry = free_entry(); entry != nullptr) {
      io_uring_prep_read(entry, read.descriptor, read.out, static_cast<unsigned>(read.bytes), read.offset);
      entry->user_data = read.tag;
      // Otherwise the kernel would copy bytes from the page cache before it accepts the next read.
      if (!read.direct) entry->flags |= IOSQE_ASYNC;
      if (submit_entries()) return;
      // The kernel has not taken this entry.
      make_nothing(entry);
    }
    ended_.push_back({read.tag, read_now(read)});
  }

  size_t wait(std::span<QueuedReadEnd> ends) override {
    size_t count = 0;
    while (count < ends.size() && !ended_.empty()) {
      ends[count++] = ended_.back();
      ended_.pop_back();
    }
    count = take_completions(ends, count);
    if (count > 0) return count;  // The next wait sees a wake() that has come.
    std::array<pollfd, 2> waited = {pollfd{event_, POLLIN, 0}, pollfd{ring_.ring_fd, POLLIN, 0}};
    if (::poll(waited.data(), waited.size(), -1) > 0 && waited[0].revents != 0) see_wake();
    return take_completions(ends, count);
  }

  void wake() override {
    if (wake_pending_.exchange(true)) return;
    const uint64_t one = 1;
    // It cannot fail: the counter is far from full.
    [[maybe_unused]] const ssize_t written = ::write(event_, &one, sizeof one);
  }

 private:
  // True if the kernel has taken the entries of the submission queue.
  bool submit_entries() {
    int taken = 0;
    do {
      taken = io_uring_submit(&ring_);
    } while (taken == -EINTR);
    return taken >= 1 && io_uring_sq_ready(&ring_) == 0;
  }

  static void make_nothing(io_uring_sqe* entry) {
    io_uring_prep_nop(entry);
    entry->user_data = kNoTag;
  }

  // Null: the kernel accepts nothing at present. Entries that it refused before are submitted again.
  io_uring_sqe* free_entry() {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    if (entry != nullptr) return entry;
    return submit_entries() ? io_uring_get_sqe(&ring_) : nullptr;
  }

  size_t take_completions(std::span<QueuedReadEnd> ends, size_t count) {
    io_uring_cqe* completion = nullptr;
    while (count < ends.size() && io_uring_peek_cqe(&ring_, &completion) == 0) {
      if (completion->user_data != kNoTag) ends[count++] = {static_cast<size_t>(completion->user_data), completion->res};
      io_uring_cqe_seen(&ring_, completion);
    }
    return count;
  }

  // The flag is cleared before the caller looks for changes: a later wake() writes again.
  void see_wake() {
    uint64_t wakes = 0;
    [[maybe_unused]] const ssize_t got = ::read(event_, &wakes, sizeof wakes);
    wake_pending_.store(false);
  }

  io_uring ring_ = {};
  bool ring_made_ = false;
  int event_ = -1;
  std::atomic<bool> wake_pending_ = false;
  std::vector<QueuedReadEnd> ended_;  // reads that were done without the ring
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
