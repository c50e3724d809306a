// Threads of one device. run() hands out numbered tasks to the calling thread and the pool's threads; it allocates nothing per
// call.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace odmoe::cpu {

// Decides whether a thread spins before it sleeps. It spins as long as that helps. With more runnable threads than cores spinning
// does not help: it takes processor time from the thread that is awaited. Several failed waits in a row show this; from then on
// only every kTryEvery-th wait spins, until one succeeds. Each thread has its own object.
class QuickWait {
 public:
  // Spins for about 20 microseconds at most; true: `ready` returned true.
  template <class Ready>
  bool wait(const Ready& ready) {
    const bool helps = failures_ < kFailures || failures_ % kTryEvery == 0;
    for (int spin = helps ? kSpins : 0; spin > 0; --spin) {
      if (ready()) {
        failures_ = 0;
        return true;
      }
      pause_briefly();
    }
    if (ready()) return true;
    ++failures_;
    return false;
  }

 private:
  // Longer than the gap between two operators of a layer, shorter than a wake-up saves.
  static constexpr int kSpins = 1000;
  // The gap between two passes is one failure.
  static constexpr uint32_t kFailures = 4;
  static constexpr uint32_t kTryEvery = 16;
  static void pause_briefly();

  uint32_t failures_ = 0;  // in a row
};

// The number of threads that the process may use (from its affinity mask where the system has one).
int usable_threads();

class ThreadPool {
 public:
  // threads >= 1; the count includes the caller of run().
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, thread) for every task in [0, tasks), 0 <= thread < threads(); returns when all are done. One caller at a
  // time; body must not throw and must not call run().
  template <class Body>
  void run(int64_t tasks, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    if (workers_.empty() || tasks <= 1) {
      for (int64_t task = 0; task < tasks; ++task) body(task, 0);
      return;
    }
    start(
        tasks, [](void* context, int64_t task, int thread) { (*static_cast<Plain*>(context))(task, thread); },
        const_cast<std::remove_const_t<Plain>*>(&body));
  }

 private:
  using Function = void (*)(void* context, int64_t task, int thread);
  void start(int64_t tasks, Function function, void* context);
  void work(int thread);
  // Takes tasks of this generation until none is left.
  void take_tasks(uint32_t generation, int thread);

  // A ticket is generation << 32 | next task. A thread that wakes up late holds an old generation, so its exchange fails and
  // it takes nothing: run() need not wait for sleepers.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  std::atomic<uint32_t> tasks_{0};
  std::atomic<Function> function_{nullptr};
  std::atomic<void*> context_{nullptr};
  alignas(64) std::atomic<uint32_t> done_{0};
  std::atomic<int> sleepers_{0};
  // For the calling thread.
  QuickWait caller_wait_;
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace odmoe::cpu
