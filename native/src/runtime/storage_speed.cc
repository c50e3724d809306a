// Measures how fast a file is read with several reads in flight, by the loader's own queues, and how fast memory is copied.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "../store/stored_chunk.h"
#include "odmoe/error.h"
#include "odmoe/read_speed.h"
#include "storage_reader.h"

namespace odmoe {
namespace {

using Clock = std::chrono::steady_clock;

// Larger, together with its copy, than a processor's caches.
constexpr uint64_t kCopyBytes = uint64_t{64} << 20;
// Bytes of all threads' copies together (they need twice this), unless each thread needs at least kLeastCopyBytes.
constexpr uint64_t kAllCopiesBytes = uint64_t{256} << 20;
constexpr uint64_t kLeastCopyBytes = uint64_t{4} << 20;

class AlignedMemory {
 public:
  explicit AlignedMemory(uint64_t bytes) : bytes_(static_cast<uint8_t*>(::operator new(bytes, kAlignment))) {
    std::memset(bytes_, 1, bytes);
  }
  ~AlignedMemory() { ::operator delete(bytes_, kAlignment); }
  AlignedMemory(const AlignedMemory&) = delete;
  AlignedMemory& operator=(const AlignedMemory&) = delete;
  uint8_t* bytes() const { return bytes_; }

 private:
  static constexpr std::align_val_t kAlignment{kReadAlignment};
  uint8_t* bytes_;
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Reads a file from its beginning, repeatedly, one step after another.
class QueueMeasurement {
 public:
  QueueMeasurement(const std::string& path, uint64_t bytes, const QueuedReadRequest& request)
      : file_(path, request.direct),
        opened_(open_storage_queue(request.way, request.depth, request.direct)),
        depth_(static_cast<size_t>(request.depth)),
        go_bytes_(read_go_bytes(request.depth)),
        whole_(std::min(bytes, file_.bytes()) / kReadAlignment * kReadAlignment),
        memory_(depth_ * go_bytes_) {
    if (whole_ == 0) throw Error(ErrorCode::internal, path + " is too small to measure reading with");
  }

  QueuedReadSpeed run(double seconds) {
    const auto start = Clock::now();
    for (size_t tag = 0; tag < depth_; tag++) submit(tag);
    size_t in_flight = depth_;
    std::array<QueuedReadEnd, kReadDepthLimit> ends;
    while (in_flight > 0) {
      const size_t count = opened_.queue->wait(ends);
      for (const QueuedReadEnd& end : std::span(ends).first(count)) {
        in_flight--;
        take(end);
        if (error_ != 0 || seconds_since(start) >= seconds) continue;
        submit(end.tag);
        in_flight++;
      }
    }
    const double taken = seconds_since(start);
    if (error_ != 0) file_.throw_read_failed(error_);
    return {.bytes_per_s = static_cast<double>(read_) / std::max(taken, 1e-9),
            .read_bytes = read_,
            .way = opened_.queue->way(),
            .direct = file_.is_direct(),
            .ring_refusal = opened_.refusal};
  }

 private:
  void submit(size_t tag) {
    if (offset_ >= whole_) offset_ = 0;
    const uint64_t bytes = std::min(go_bytes_, whole_ - offset_);
    opened_.queue->submit({.tag = tag,
                           .descriptor = file_.descriptor(),
                           .offset = offset_,
                           .out = memory_.bytes() + tag * go_bytes_,
                           .bytes = bytes,
                           .direct = file_.is_direct()});
    offset_ += bytes;
  }

  void take(const QueuedReadEnd& end) {
    if (end.result > 0) {
      read_ += static_cast<uint64_t>(end.result);
      return;
    }
    const int error = static_cast<int>(-end.result);
    // Reads that were submitted while the file was still read directly may be refused even after it has switched to the page cache.
    const bool again =
        error == EINTR || error == EAGAIN || file_.leave_direct_after(error) || (error == EINVAL && !file_.is_direct());
    if (!again || ++failures_ > kFailureLimit) error_ = error == 0 ? EIO : error;
  }

  static constexpr int kFailureLimit = 100;

  File file_;
  OpenedQueue opened_;
  size_t depth_;
  uint64_t go_bytes_;
  uint64_t whole_;
  AlignedMemory memory_;
  uint64_t offset_ = 0;
  uint64_t read_ = 0;
  int failures_ = 0;
  int error_ = 0;
};

}  // namespace

QueuedReadSpeed measure_queued_reads(const std::string& path, uint64_t bytes, const QueuedReadRequest& request, double seconds) {
  return QueueMeasurement(path, bytes, request).run(seconds);
}

double measure_memory_copy(int threads, double seconds) {
  const auto count = static_cast<size_t>(threads);
  const uint64_t bytes = std::max(kLeastCopyBytes, std::min(kCopyBytes, kAllCopiesBytes / count));
  // All memory is allocated first: if there is not enough, no thread has started.
  std::deque<AlignedMemory> memory;
  for (size_t i = 0; i < 2 * count; i++) memory.emplace_back(bytes);
  std::vector<double> rates(count);
  {
    std::vector<std::jthread> copying;
    copying.reserve(count);
    for (size_t i = 0; i < count; i++) {
      copying.emplace_back([&rate = rates[i], from = memory[2 * i].bytes(), to = memory[2 * i + 1].bytes(), bytes, seconds] {
        const auto start = Clock::now();
        uint64_t copied = 0;
        do {
          from[copied / bytes % bytes]++;  // so that the compiler cannot omit a copy
          std::memcpy(to, from, bytes);
          copied += bytes;
        } while (seconds_since(start) < seconds);
        rate = static_cast<double>(copied) / seconds_since(start);
      });
    }
  }
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

}  // namespace odmoe
