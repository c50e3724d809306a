// A device in use: its backend and the two threads that work on it.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "odmoe/backend.h"
#include "odmoe/float_environment.h"
#include "odmoe/live_count.h"

namespace odmoe {

class Job {
 public:
  virtual ~Job() = default;
  // Called once, on the queue's thread; the job owns itself and may move on to another thread.
  virtual void run(std::unique_ptr<Job> self) noexcept = 0;
};

inline constexpr size_t kQueuedJobLimit = 65536;

// Threads that take jobs in the order of their posts; with one thread jobs run one by one. The destructor waits for all jobs.
class JobQueue {
 public:
  explicit JobQueue(int threads = 1);
  ~JobQueue();
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;
  // May be called from any thread. Throws QUEUE_FULL.
  void post(std::unique_ptr<Job> job);

  // Runs `work` on the calling thread where no job runs or waits; jobs that are posted meanwhile wait for its end. False: something
  // else uses the queue, and nothing was run. May be called from any thread except the queue's own. An error of `work` passes to
  // the caller.
  template <class Work>
  bool run_here(Work&& work) {
    if (!hold()) return false;
    const Holding holding{*this};
    const ExactFloatEnvironment exact;
    work();
    return true;
  }

 private:
  struct Holding {
    JobQueue& queue;
    ~Holding() { queue.release(); }
  };

  void run();
  bool hold();
  void release();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>> jobs_;
  bool stopping_ = false;
  int running_ = 0;    // jobs that threads are running
  bool held_ = false;  // a caller of run_here uses the queue
  std::vector<std::thread> threads_;
};

class Device : public LiveCount<Device> {
 public:
  explicit Device(std::unique_ptr<Backend> backend)
      : backend_(std::move(backend)), works_here_(backend_->info().backend == "cpu") {}
  const std::shared_ptr<Backend>& backend() const { return backend_; }
  // Operators run here, one job at a time.
  JobQueue& executor() { return executor_; }
  // True if any thread can work in place of the executor (JobQueue::run_here): the device is the processor.
  bool works_here() const { return works_here_; }
  // Weights are read and written to the device here, while the executor works.
  JobQueue& storage() { return storage_; }

 private:
  std::shared_ptr<Backend> backend_;
  bool works_here_;
  JobQueue executor_;
  JobQueue storage_;
};

// Device memory that the destructor releases. It is zeroed at first. Throws DEVICE_OUT_OF_MEMORY.
class DeviceMemory {
 public:
  // host_staging: outside the budget.
  enum class Kind : uint8_t { device, staging, host_staging };

  DeviceMemory() = default;
  DeviceMemory(std::shared_ptr<Backend> backend, uint64_t bytes, Kind kind = Kind::device);
  ~DeviceMemory() { reset(); }
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  void reset() noexcept;

  bool empty() const { return backend_ == nullptr; }
  // Bytes of all DeviceMemory in this process.
  static uint64_t live_bytes();
  const DeviceBuffer& buffer() const { return buffer_; }
  float* floats() const { return static_cast<float*>(buffer_.data); }
  uint8_t* bytes() const { return static_cast<uint8_t*>(buffer_.data); }

 private:
  std::shared_ptr<Backend> backend_;
  DeviceBuffer buffer_;
  Kind kind_ = Kind::device;
};

inline uint64_t float_bytes(int64_t count) { return static_cast<uint64_t>(count) * sizeof(float); }

}  // namespace odmoe
