// Queues with several storage reads in flight at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "odmoe/expert_load.h"

namespace odmoe {

struct QueuedRead {
  size_t tag = 0;  // identifies this read at its end
  int descriptor = -1;
  uint64_t offset = 0;
  uint8_t* out = nullptr;
  uint64_t bytes = 0;
  bool direct = false;  // past the page cache, so that no processor copies it
};

struct QueuedReadEnd {
  size_t tag = 0;
  // Bytes that were read, possibly fewer than requested; 0 at the end of the file; the negative of an errno value on failure.
  int64_t result = 0;
};

// Reads on the calling thread; returns a value like QueuedReadEnd::result.
int64_t read_now(const QueuedRead& read);

// One thread submits and waits; any thread may call wake(). Reads begin in the order of submission and end in any order.
class StorageQueue {
 public:
  // No read may be in flight.
  virtual ~StorageQueue() = default;

  virtual StorageWay way() const = 0;
  // File and memory must stay until the read has ended. No more than the queue's depth may be in flight.
  virtual void submit(const QueuedRead& read) = 0;
  // Waits until a read has ended or wake() has been called, also before the wait. Returns how many ends it wrote, possibly none.
  virtual size_t wait(std::span<QueuedReadEnd> ends) = 0;
  virtual void wake() = 0;
};

// Reads with pread: on the waiting thread, and on depth - 1 other threads when they get processor time. So a read through the page
// cache is not handed to another thread while the processors are busy. Only the other threads run direct reads, if there are any.
std::unique_ptr<StorageQueue> make_thread_queue(int depth);

// Reads through io_uring. Null where io_uring is not available; `refusal` then has the reason.
std::unique_ptr<StorageQueue> make_ring_queue(int depth, std::string& refusal);

struct OpenedQueue {
  std::unique_ptr<StorageQueue> queue;
  std::string refusal;  // why the wanted ring is not used; empty where the queue is as wanted
};

// Automatic: the ring for direct reads, which wait for the storage; threads for reads through the page cache, which copy memory.
OpenedQueue open_storage_queue(WantedStorageWay wanted, int depth, bool direct);

}  // namespace odmoe
