#include "storage_queue.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace odmoe {
int64_t read_now(const QueuedRead& read) {
  const ssize_t got = ::pread(read.descriptor, read.out, read.bytes, static_cast<off_t>(read.offset));
  return got < 0 ? -static_cast<int64_t>(errno) : static_cast<int64_t>(got);
}

namespace {

class ThreadQueue : public StorageQueue {
 public:
  explicit ThreadQueue(int depth) {
    asked_.reserve(static_cast<size_t>(depth));
    ended_.reserve(static_cast<size_t>(depth));
    try {
      for (int i = 1; i < depth; i++) threads_.emplace_back([this] { read_loop(); });
    } catch (...) {
      stop_threads();
      throw;
    }
  }
  ~ThreadQueue() override { stop_threads(); }
  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;

  StorageWay way() const override { return StorageWay::threads; }

  void submit(const QueuedRead& read) override {
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(read);
    }
    asked_changed_.notify_one();
  }

  size_t wait(std::span<QueuedReadEnd> ends) override {
    std::unique_lock lock(mutex_);
    while (!woken_ && ended_.empty()) {
      // A direct read would block this thread for as long as the storage takes, and it could begin no others.
      const bool leaves_it = !asked_.empty() && asked_.front().direct && !threads_.empty();
      if (asked_.empty() || leaves_it) {
        ended_changed_.wait(lock);
      } else {
        read_first(lock);
      }
    }
    woken_ = false;
    const size_t count = std::min(ends.size(), ended_.size());
    std::copy_n(ended_.begin(), count, ends.begin());
    ended_.erase(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    ended_changed_.notify_one();
  }

 private:
  void read_loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      asked_changed_.wait(lock, [this] { return stopping_ || !asked_.empty(); });
      if (asked_.empty()) return;
      read_first(lock);
      ended_changed_.notify_one();
    }
  }

  void read_first(std::unique_lock<std::mutex>& lock) {
    const QueuedRead read = asked_.front();
    asked_.erase(asked_.begin());
    lock.unlock();
    const int64_t result = read_now(read);
    lock.lock();
    ended_.push_back({read.tag, result});
  }

  void stop_threads() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    asked_changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::mutex mutex_;
  std::condition_variable asked_changed_;
  std::condition_variable ended_changed_;
  std::vector<QueuedRead> asked_;  // reads that no thread has begun, in order
  std::vector<QueuedReadEnd> ended_;
  bool woken_ = false;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<StorageQueue> make_thread_queue(int depth) { return std::make_unique<ThreadQueue>(depth); }

OpenedQueue open_storage_queue(WantedStorageWay wanted, int depth, bool direct) {
  OpenedQueue opened;
  const bool automatic = wanted == WantedStorageWay::automatic;
  if (wanted == WantedStorageWay::io_uring || (automatic && direct && depth > 1)) {
    opened.queue = make_ring_queue(depth, opened.refusal);
  }
  if (opened.queue == nullptr) opened.queue = make_thread_queue(depth);
  return opened;
}

}  // namespace odmoe
