// A device's threads have the exact floating-point state, whatever state the opening thread has.
#include "odmoe/device.h"

#include <atomic>
#include <cfenv>
#include <cstdint>
#include <future>
#include <stdexcept>
#include <thread>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "../src/backends/cpu/thread_pool.h"
#include "native_tests.h"

namespace odmoe::test {
namespace {

// During its lifetime this thread rounds upwards and, where that can be set, flushes denormals to zero.
class InexactThread {
 public:
  InexactThread() {
    std::fegetenv(&before_);
    std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
    constexpr unsigned kFlushToZero = 0x8040;
    _mm_setcsr(_mm_getcsr() | kFlushToZero);
#elif defined(__aarch64__)
    constexpr uint64_t kFlushToZero = uint64_t{1} << 24;
    uint64_t control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    asm volatile("msr fpcr, %0" : : "r"(control | kFlushToZero));
#endif
  }
  ~InexactThread() { std::fesetenv(&before_); }
  InexactThread(const InexactThread&) = delete;
  InexactThread& operator=(const InexactThread&) = delete;

 private:
  std::fenv_t before_;
};

bool computes_exactly() {
  volatile float denormal = 0x1p-140f;
  volatile float halved = denormal * 0.5f;
  return halved == 0x1p-141f && std::fegetround() == FE_TONEAREST;
}

class Probe : public Job {
 public:
  explicit Probe(std::promise<bool> exact) : exact_(std::move(exact)) {}
  void run(std::unique_ptr<Job>) noexcept override { exact_.set_value(computes_exactly()); }

 private:
  std::promise<bool> exact_;
};

void queues_compute_exactly() {
  std::future<bool> exact;
  {
    const InexactThread inexact;
    JobQueue queue;
    std::promise<bool> promise;
    exact = promise.get_future();
    queue.post(std::make_unique<Probe>(std::move(promise)));
  }
  check(exact.get(), "a queue's thread has the state of the thread that made it");
}

class Count : public Job {
 public:
  explicit Count(std::atomic<int>& count) : count_(count) {}
  void run(std::unique_ptr<Job>) noexcept override { count_++; }

 private:
  std::atomic<int>& count_;
};

void callers_take_the_place_of_a_job() {
  std::atomic<int> jobs{0};
  const InexactThread inexact;
  {
    JobQueue queue;
    const bool ran = queue.run_here([&] {
      check(computes_exactly(), "work on the caller's thread computes exactly");
      for (int i = 0; i < 10; i++) queue.post(std::make_unique<Count>(jobs));
      check(!queue.run_here([] {}), "the queue is held once");
      check(jobs == 0, "jobs wait for the caller's work");
    });
    check(ran, "the queue did nothing");
    check(!computes_exactly(), "the caller has its own state back");
  }
  check(jobs == 10, "jobs that waited have run");
}

// Two callers and many jobs run one at a time, and none is lost.
void callers_and_jobs_take_turns() {
  constexpr int kRounds = 2000;
  std::atomic<int> inside{0};
  std::atomic<int> overlaps{0};
  std::atomic<int> jobs{0};
  class Alone : public Job {
   public:
    Alone(std::atomic<int>& inside, std::atomic<int>& overlaps, std::atomic<int>& jobs)
        : inside_(inside), overlaps_(overlaps), jobs_(jobs) {}
    void run(std::unique_ptr<Job>) noexcept override {
      if (inside_.fetch_add(1) != 0) overlaps_++;
      inside_--;
      jobs_++;
    }

   private:
    std::atomic<int>& inside_;
    std::atomic<int>& overlaps_;
    std::atomic<int>& jobs_;
  };
  {
    JobQueue queue;
    const auto call = [&] {
      for (int round = 0; round < kRounds; round++) {
        queue.run_here([&] {
          if (inside.fetch_add(1) != 0) overlaps++;
          inside--;
        });
        queue.post(std::make_unique<Alone>(inside, overlaps, jobs));
      }
    };
    std::thread other(call);
    call();
    other.join();
  }
  check(overlaps == 0, "work of two at a time");
  check(jobs == 2 * kRounds, "a job was lost");
}

void throwing_work_gives_the_queue_back() {
  JobQueue queue;
  bool thrown = false;
  try {
    queue.run_here([] { throw std::runtime_error("no"); });
  } catch (const std::runtime_error&) {
    thrown = true;
  }
  check(thrown && queue.run_here([] {}), "the queue is free again");
}

void pools_compute_exactly() {
  std::atomic<int> inexact_tasks{0};
  const InexactThread inexact;
  cpu::ThreadPool pool(3);
  for (int round = 0; round < 100; ++round) {
    pool.run(30, [&](int64_t, int thread) {
      if (thread != 0 && !computes_exactly()) inexact_tasks++;
    });
  }
  check(inexact_tasks == 0, "a pool's thread has the state of the thread that made it");
}

}  // namespace

void add_device_cases(std::vector<Case>& cases) {
  cases.push_back({"device: its queues compute exactly", queues_compute_exactly});
  cases.push_back({"device: a caller takes the place of a job", callers_take_the_place_of_a_job});
  cases.push_back({"device: callers and jobs take turns", callers_and_jobs_take_turns});
  cases.push_back({"device: work that throws gives the queue back", throwing_work_gives_the_queue_back});
  cases.push_back({"device: its pool computes exactly", pools_compute_exactly});
}

}  // namespace odmoe::test
