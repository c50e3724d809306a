// The simulated machine: the memory it has given out, the streams' queues, and the one thread that executes.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "configuration.h"
#include "cuda_runtime_api.h"

namespace odmoe_simulated {

struct Event {
  unsigned flags = 0;
  int device = 0;
  uint64_t recorded = 0;   // records issued
  uint64_t completed = 0;  // records executed
  std::chrono::steady_clock::time_point time;
};

struct Operation {
  uint64_t issue = 0;  // the order of all calls
  std::function<void()> run;
  // A wait is ready when the event's record it names is done; a record completes it.
  std::shared_ptr<Event> wait_for, record;
  uint64_t version = 0;
  bool kernel = false;
};

struct Stream {
  int device = 0;
  int priority = 0;
  std::deque<Operation> queue;  // the head stays in it while it runs
  bool running = false;
};

struct Allocation {
  enum class Kind { kDevice, kMapped, kHost, kRegistered };
  Kind kind = Kind::kDevice;
  int device = 0;
  size_t size = 0;         // asked for
  char* region = nullptr;  // the mapped range, including guards
  size_t region_size = 0;
};

class Machine {
 public:
  static Machine& get();

  // Every function below is called with `mutex` held; functions with a lock parameter may release it while they wait.
  std::mutex mutex;

  // The error that every call returns, if there is one: a driver that is too old, no device, a lost device.
  cudaError_t usable() const;
  bool has_context() const { return std::find(contexts_.begin(), contexts_.end(), true) != contexts_.end(); }
  // Creates the context of the calling thread's device (false: no memory for it).
  bool open_context(int device);

  cudaError_t allocate_device(void** pointer, size_t size, int device);
  cudaError_t allocate_host(void** pointer, size_t size);
  cudaError_t free_allocation(void* pointer, Allocation::Kind kind);
  // Takes bytes of a device's memory, or gives them back.
  bool take(int device, size_t bytes);
  void give_back(int device, size_t bytes);
  size_t used(int device) const { return used_[static_cast<size_t>(device)]; }
  bool next_allocation_fails();
  bool next_mapping_fails() { return mappings_until_failure >= 0 && mappings_until_failure-- == 0; }
  // The allocation that contains all of [pointer, pointer + size); null where there is none. `base`: its start.
  const Allocation* find(const void* pointer, size_t size, const char** base = nullptr) const;
  // True where any byte of the range belongs to an allocation.
  bool touches_allocation(const void* pointer, size_t size) const;
  // Ranges that others have mapped: memory under reserved addresses, the program's own memory registered.
  void add(void* pointer, size_t size, int device, Allocation::Kind kind);
  bool remove(void* pointer, Allocation::Kind kind);
  // Addresses that a kernel may be given: allocations and reserved ranges, their ends too.
  bool may_be_argument(const void* pointer) const;
  std::map<uintptr_t, size_t> reserved;  // address ranges of the driver
  int64_t mappings_until_failure = -1;

  void enqueue(Stream& stream, Operation operation);
  void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done);
  void wait_idle(std::unique_lock<std::mutex>& lock, int device);
  bool idle(int device) const;

  std::map<cudaStream_t, std::shared_ptr<Stream>> streams;
  std::map<cudaEvent_t, std::shared_ptr<Event>> events;
  uintptr_t next_handle = 0x1000;
  // The stream of the runtime's calls without a stream.
  Stream& default_stream(int device) { return *default_streams_[static_cast<size_t>(device)]; }
  // A stream exists until its work is done, even without its handle.
  std::shared_ptr<Stream> new_stream(int device, int priority);
  // The seed of one launch's order of blocks and threads; 0: in order.
  uint64_t next_seed() { return configuration().seed == 0 ? 0 : seeds_() | 1; }
  // True if the next free waits until the device has nothing to do.
  bool next_free_waits() { return configuration().seed == 0 || (seeds_() & 1) != 0; }
  void lose(cudaError_t error) {
    sticky_ = error;
    changed_.notify_all();
  }

 private:
  Machine();
  void execute();
  Stream* choose();
  void hold_back(std::unique_lock<std::mutex>& lock);

  std::vector<size_t> used_;
  std::vector<bool> contexts_;
  std::vector<std::shared_ptr<Stream>> default_streams_, queues_;
  std::map<const char*, Allocation> allocations_;
  std::deque<Allocation> freed_;  // their addresses are not reused for a while
  cudaError_t sticky_ = cudaSuccess;
  uint64_t issued_ = 0;
  int64_t allocations_made_ = 0, kernels_run_ = 0;
  bool ready_ = false;  // the device thread is
  int waiting_ = 0;     // host threads
  std::condition_variable changed_, work_;
  std::mt19937_64 random_, seeds_;
};

int& current_device();
// Calls that this thread has made.
unsigned long long& calls_made();
cudaError_t remember(cudaError_t error);

}  // namespace odmoe_simulated
