// Several reads in flight: experts are the same to the bit, for any order of ends and any faults.
#include <fcntl.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "../src/runtime/storage_queue.h"
#include "native_tests.h"
#include "odmoe/error.h"
#include "stored_expert.h"

namespace odmoe::test {
namespace {

constexpr ExpertShape kShape{.hidden_size = 160, .glu = {.intermediate_size = 224}, .format = WeightFormat::bf16};
constexpr int kSlots = 3;

// The function with which a randomized storage answers the next read.
using Answer = std::function<int64_t(const QueuedRead&)>;

int64_t read_whole(const QueuedRead& read) {
  return ::pread(read.descriptor, read.out, read.bytes, static_cast<off_t>(read.offset));
}

// Ends reads in a random order, when the test allows it, with its own results.
class DrawnQueue : public StorageQueue {
 public:
  DrawnQueue(uint32_t seed, Answer answer, int64_t allowed = INT64_MAX)
      : random_(seed), answer_(std::move(answer)), allowed_(allowed) {}

  StorageWay way() const override { return StorageWay::threads; }
  void submit(const QueuedRead& read) override {
    const std::lock_guard lock(mutex_);
    reads_.push_back(read);
    most_ = std::max(most_, reads_.size());
    changed_.notify_all();
  }
  size_t wait(std::span<QueuedReadEnd> ends) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return woken_ || (!reads_.empty() && allowed_ > 0); });
    woken_ = false;
    size_t count = 0;
    while (count < ends.size() && !reads_.empty() && allowed_ > 0 && random_() % 4 != 0) {
      const size_t at = random_() % reads_.size();
      const QueuedRead read = reads_[at];
      reads_.erase(reads_.begin() + static_cast<std::ptrdiff_t>(at));
      allowed_--;
      ends[count++] = {read.tag, answer_(read)};
    }
    return count;
  }
  void wake() override {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_all();
  }

  // For the test: waits until all allowed reads have ended and another one is in flight. False: `over` came first.
  bool is_stuck(const std::function<bool()>& over) {
    std::unique_lock lock(mutex_);
    while (allowed_ > 0 || reads_.empty()) {
      if (over()) return false;
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
    return true;
  }
  void allow_all() {
    const std::lock_guard lock(mutex_);
    allowed_ = INT64_MAX;
    changed_.notify_all();
  }
  size_t most_in_flight() {
    const std::lock_guard lock(mutex_);
    return most_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937 random_;
  Answer answer_;
  int64_t allowed_;
  std::vector<QueuedRead> reads_;
  size_t most_ = 0;
  bool woken_ = false;
};

struct Loading {
  Loading(const StoredForm& form, const std::function<void(LoaderOptions&)>& change, std::unique_ptr<StorageQueue> queue = nullptr,
          const ExpertShape& shape = kShape)
      : values(gaussian_weights(shape, 6)),
        source(store_expert(directory.path("expert"), values, form)),
        expected(expected_matrices(backend, values, form.split)),
        loads(kSlots) {
    LoaderOptions options = options_for({source});
    change(options);
    loader = std::make_unique<ExpertLoader>(backend, shape, kSlots, options, std::move(queue));
    for (int i = 0; i < kSlots; i++) matrices.emplace_back(backend, shape);
  }

  void begin(size_t slot, const LoadRequest& request = {}) {
    loads[slot].reuse();
    loader->load(static_cast<int>(slot), matrices[slot], source, request, loads[slot]);
  }
  void begin_all() {
    for (size_t i = 0; i < kSlots; i++) begin(i);
  }
  void check_loaded(size_t slot) {
    check(loads[slot].wait().loaded, "loaded");
    check_same_matrices(matrices[slot], expected, "a load of several reads at a time");
  }
  void check_all() {
    for (size_t i = 0; i < kSlots; i++) check_loaded(i);
  }

  std::shared_ptr<Backend> backend = open_backend("auto");
  TestDirectory directory;
  ExpertValues values;
  ExpertSource source;
  ExpertMatrices expected;
  std::vector<ExpertMatrices> matrices;
  std::vector<AwaitedLoad> loads;
  std::unique_ptr<ExpertLoader> loader;  // destroyed before the memory to which it writes
};

std::function<void(LoaderOptions&)> depth_of(int depth) {
  return [depth](LoaderOptions& options) { options.read_depth = depth; };
}

const CodecKind kCodecs[] = {CodecKind::raw, CodecKind::zstd, CodecKind::lz4hc, CodecKind::fixed4, CodecKind::huffman};

// Short, interrupted and refused reads, in any order.
void equals_serial_whatever_storage_does() {
  for (uint32_t seed = 0; seed < 40; seed++) {
    auto random = std::make_shared<std::mt19937>(seed);
    const Answer answer = [random](const QueuedRead& read) -> int64_t {
      const uint32_t drawn = (*random)() % 8;
      if (drawn == 0) return -EINTR;
      if (drawn == 1) return -EAGAIN;
      if (drawn > 3) return read_now(read);
      QueuedRead part = read;
      part.bytes = 1 + (*random)() % read.bytes;
      // Direct reads end at sectors. A device with larger sectors refuses some of them, and the file is then read through the page
      // cache.
      if (read.direct) part.bytes = std::min(read.bytes, (part.bytes + 511) / 512 * 512);
      return read_now(part);
    };
    const auto options = [seed](LoaderOptions& options) {
      options.read_depth = 1 << (seed % 5);
      options.direct_io = seed % 2 == 0;
    };
    Loading loading({.codec = kCodecs[seed % 5], .shards = 1 + static_cast<int>(seed % 4), .aligned = seed % 3 != 0}, options,
                    std::make_unique<DrawnQueue>(seed, answer));
    for (int round = 0; round < 4; round++) {
      loading.begin_all();
      loading.loader->prioritize(static_cast<int>(seed % kSlots));
      loading.check_all();
    }
  }
}

// A stuck thread cannot be joined: if the condition does not become true in time, the program ends.
template <typename Condition>
void yield_until(Condition holds, const char* what) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds()) {
    std::this_thread::yield();
    if (std::chrono::steady_clock::now() < end) continue;
    std::fprintf(stderr, "storage reads: %s\n", what);
    std::abort();
  }
}

void has_several_reads_in_flight() {
  for (const int depth : {1, 2, 6, 16}) {
    auto owned = std::make_unique<DrawnQueue>(1, read_whole, 0);
    DrawnQueue& queue = *owned;
    Loading loading({.codec = CodecKind::huffman, .shards = 4}, depth_of(depth), std::move(owned));
    loading.begin_all();
    const auto at_least = static_cast<size_t>(std::min(depth, 4));
    // Nothing may end before.
    yield_until([&] { return queue.most_in_flight() >= at_least; }, "not as many reads are in flight as may be");
    queue.allow_all();
    loading.check_all();
    check(queue.most_in_flight() <= static_cast<size_t>(depth), "no more reads than the depth allows");
  }
}

// A load that is cancelled with reads in flight settles when these have ended, and not before: they still write to its buffers.
void cancels_at_every_point() {
  for (const CodecKind codec : {CodecKind::raw, CodecKind::huffman}) {
    for (int64_t point = 0;; point++) {
      auto owned = std::make_unique<DrawnQueue>(static_cast<uint32_t>(point), read_whole, point);
      DrawnQueue& queue = *owned;
      Loading loading({.codec = codec, .shards = 3}, depth_of(4), std::move(owned));
      loading.begin(0);
      const bool stuck = queue.is_stuck([&] { return loading.loads[0].is_settled(); });
      if (!stuck) break;
      loading.loader->cancel(0);
      check(!loading.loads[0].is_settled(), "a read is in flight into a buffer that was given back");
      queue.allow_all();
      check(!loading.loads[0].wait().loaded, "cancelled");
      loading.begin_all();
      loading.check_all();
    }
  }
}

void tells_of_storage_that_fails() {
  for (int failing = 0; failing < 12; failing++) {
    auto count = std::make_shared<int>(0);
    const Answer answer = [count, failing](const QueuedRead& read) -> int64_t {
      return (*count)++ == failing ? -EIO : read_whole(read);
    };
    Loading loading({.codec = CodecKind::zstd, .shards = 3}, depth_of(4), std::make_unique<DrawnQueue>(3, answer));
    loading.begin_all();
    int failed = 0;
    for (size_t i = 0; i < kSlots; i++) {
      try {
        loading.check_loaded(i);
      } catch (const Error& error) {
        check(error.code() == ErrorCode::storage_failed, "STORAGE_FAILED");
        failed++;
      }
    }
    check(failed == 1, "the load fails whose read has failed, and no other");
    loading.begin_all();
    loading.check_all();
  }
  Loading loading({}, depth_of(4), std::make_unique<DrawnQueue>(3, [](const QueuedRead&) -> int64_t { return -EAGAIN; }));
  loading.begin(0);
  check_refused(ErrorCode::storage_failed, [&] { loading.loads[0].wait(); });
}

void survives_any_mixture(WantedStorageWay way, bool direct) {
  Loading loading({.codec = CodecKind::fixed4, .shards = 5}, [&](LoaderOptions& options) {
    options.read_depth = 8;
    options.storage_way = way;
    options.direct_io = direct;
  });
  std::mt19937 random(12);
  std::array<bool, kSlots> cancelled = {};
  std::array<bool, kSlots> begun = {};
  for (int i = 0; i < 600; i++) {
    const size_t slot = random() % kSlots;
    const int number = static_cast<int>(slot);
    if (begun[slot]) {
      const bool loaded = loading.loads[slot].wait().loaded;
      check(loaded || cancelled[slot], "loaded unless cancelled");
      if (loaded) check_same_matrices(loading.matrices[slot], loading.expected, "a load among cancelled ones");
    }
    LoadRequest request;
    request.urgent = random() % 4 == 0;
    loading.begin(slot, request);
    begun[slot] = true;
    if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    if (random() % 3 == 0) loading.loader->prioritize(number);
    cancelled[slot] = random() % 3 == 0;
    if (cancelled[slot]) loading.loader->cancel(number);
  }
  for (size_t i = 0; i < kSlots; i++) loading.loads[i].wait();
  loading.begin_all();
  loading.check_all();
}

void ends_while_loading(WantedStorageWay way) {
  for (int i = 0; i < 20; i++) {
    Loading loading({.codec = CodecKind::raw, .shards = 4}, [&](LoaderOptions& options) { options.storage_way = way; });
    loading.begin_all();
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50 * i));
    loading.loader.reset();
    for (AwaitedLoad& load : loading.loads) check(load.is_settled(), "settled when the loader has gone");
  }
}

// Experts of several steps each, by every way, past the page cache and through it; also with a file that ends within a block.
void loads_the_same_by_every_way() {
  const ExpertShape shape{.hidden_size = 1024, .glu = {.intermediate_size = 1792}, .format = WeightFormat::bf16};
  for (const bool aligned : {true, false}) {
    for (const WantedStorageWay way : {WantedStorageWay::automatic, WantedStorageWay::threads, WantedStorageWay::io_uring}) {
      for (const bool direct : {false, true}) {
        const auto change = [&](LoaderOptions& options) {
          options.read_depth = 6;
          options.storage_way = way;
          options.direct_io = direct;
        };
        Loading loading({.codec = CodecKind::huffman, .shards = 1, .aligned = aligned}, change, nullptr, shape);
        loading.begin_all();
        loading.check_all();
        const StorageReads reads = loading.loader->storage_reads();
        check(reads.depth == 6 && reads.direct == direct, "how it reads");
        check(way != WantedStorageWay::io_uring || (reads.way == StorageWay::io_uring) == reads.ring_refusal.empty(),
              "the ring, or why not");
      }
    }
  }
}

void uses_a_ring_where_there_is_one() {
#if defined(__linux__) && defined(SYS_io_uring_setup)
  alignas(8) uint8_t parameters[256] = {};
  const long ring = ::syscall(SYS_io_uring_setup, 1, parameters);
  if (ring >= 0) ::close(static_cast<int>(ring));
  std::string refusal;
  const auto queue = make_ring_queue(4, refusal);
  check((queue == nullptr) == !refusal.empty(), "a ring or a refusal");
  check(queue != nullptr || ring < 0 || refusal == "odmoe was built without liburing", "the kernel has a ring: " + refusal);
  check(queue == nullptr || open_storage_queue(WantedStorageWay::automatic, 4, true).queue->way() == StorageWay::io_uring,
        "direct reads go through it");
#endif
  check(open_storage_queue(WantedStorageWay::automatic, 4, false).queue->way() == StorageWay::threads, "copies are for threads");
}

std::vector<std::unique_ptr<StorageQueue>> all_queues(int depth) {
  std::vector<std::unique_ptr<StorageQueue>> queues;
  queues.push_back(make_thread_queue(depth));
  std::string refusal;
  if (auto ring = make_ring_queue(depth, refusal)) queues.push_back(std::move(ring));
  return queues;
}

void loses_no_wake() {
  for (const int depth : {1, 4}) {
    for (const auto& queue : all_queues(depth)) {
      std::atomic<int> told = 0;
      std::atomic<int> seen = 0;
      constexpr int kWakes = 3000;
      std::thread waiting([&] {
        std::array<QueuedReadEnd, 4> ends;
        while (seen < kWakes) {
          check(queue->wait(ends) == 0, "no read has ended");
          seen = told.load();
        }
      });
      for (int i = 1; i <= kWakes; i++) {
        told = i;
        queue->wake();
        // Sometimes the waiting thread gets time to fall asleep.
        if (i % 8 == 0) yield_until([&] { return seen >= i; }, "a wake was lost");
      }
      yield_until([&] { return seen >= kWakes; }, "the last wake was lost");
      waiting.join();
    }
  }
}

void reads_as_a_file_is() {
  const TestDirectory directory;
  std::ofstream(directory.path("file"), std::ios::binary) << "0123456789";
  const int descriptor = ::open(directory.path("file").c_str(), O_RDONLY | O_CLOEXEC);
  for (const int depth : {1, 3}) {
    for (const auto& queue : all_queues(depth)) {
      const auto end_of = [&](int file, uint64_t offset, uint64_t bytes, uint8_t* out) {
        queue->submit({.tag = 2, .descriptor = file, .offset = offset, .out = out, .bytes = bytes});
        std::array<QueuedReadEnd, 4> ends;
        size_t count = 0;
        while (count == 0) count = queue->wait(ends);
        check(count == 1 && ends[0].tag == 2, "the end of the read");
        return ends[0].result;
      };
      uint8_t out[16] = {};
      check(end_of(descriptor, 2, 3, out) == 3 && out[0] == '2' && out[3] == 0, "a read");
      check(end_of(descriptor, 8, 16, out) == 2, "short at the end");
      check(end_of(descriptor, 10, 16, out) == 0, "nothing behind it");
      check(end_of(-1, 0, 1, out) == -EBADF, "no file");
    }
  }
  ::close(descriptor);
}

}  // namespace

void add_storage_read_cases(std::vector<Case>& cases) {
  const std::string name = "storage reads: ";
  cases.push_back({name + "equals serial whatever storage does", equals_serial_whatever_storage_does});
  cases.push_back({name + "has several reads in flight", has_several_reads_in_flight});
  cases.push_back({name + "cancels at every point", cancels_at_every_point});
  cases.push_back({name + "tells of storage that fails", tells_of_storage_that_fails});
  cases.push_back({name + "loads the same by every way", loads_the_same_by_every_way});
  cases.push_back({name + "uses a ring where there is one", uses_a_ring_where_there_is_one});
  cases.push_back({name + "loses no wake", loses_no_wake});
  cases.push_back({name + "reads as a file is", reads_as_a_file_is});
  cases.push_back({name + "survives any mixture, threads", [] { survives_any_mixture(WantedStorageWay::threads, false); }});
  cases.push_back({name + "survives any mixture, ring", [] { survives_any_mixture(WantedStorageWay::io_uring, true); }});
  cases.push_back({name + "ends while loading, threads", [] { ends_while_loading(WantedStorageWay::threads); }});
  cases.push_back({name + "ends while loading, ring", [] { ends_while_loading(WantedStorageWay::io_uring); }});
}

}  // namespace odmoe::test
