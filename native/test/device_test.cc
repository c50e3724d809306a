// A device's threads: whatever floating-point state the thread has that opens it, theirs is the exact one.
#include "odmoe/device.h"

#include <cfenv>
#include <future>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "../src/backends/cpu/thread_pool.h"
#include "native_tests.h"

namespace odmoe::test {
namespace {

// For its lifetime this thread rounds upwards and, where that can be said, has denormals flushed to zero.
class InexactThread {
 public:
  InexactThread() {
    std::fegetenv(&before_);
    std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
    constexpr unsigned kFlushToZero = 0x8040;
    _mm_setcsr(_mm_getcsr() | kFlushToZero);
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
  cases.push_back({"device: its pool computes exactly", pools_compute_exactly});
}

}  // namespace odmoe::test
