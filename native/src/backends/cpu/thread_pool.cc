#include "thread_pool.h"

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>

#include "odmoe/float_environment.h"

namespace odmoe::cpu {
namespace {

// Greater than every task number.
constexpr uint32_t kNoTask = UINT32_MAX;

}  // namespace

void QuickWait::pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

int usable_threads() {
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

ThreadPool::ThreadPool(int threads) {
  workers_.reserve(static_cast<size_t>(std::max(0, threads - 1)));
  for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::start(int64_t tasks, Function function, void* context) {
  const uint32_t count = static_cast<uint32_t>(tasks);
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  // First publish the new generation without a task: a worker that still looks for work of the old generation must not see the new
  // number of tasks together with a valid ticket. Release and acquire on the stores below make its exchange fail.
  ticket_.store(uint64_t{generation} << 32 | kNoTask, std::memory_order_relaxed);
  function_.store(function, std::memory_order_release);
  context_.store(context, std::memory_order_release);
  tasks_.store(count, std::memory_order_release);
  done_.store(0, std::memory_order_relaxed);
  ticket_.store(uint64_t{generation} << 32, std::memory_order_release);
  generation_.store(generation);
  if (sleepers_.load() != 0) generation_.notify_all();
  take_tasks(generation, 0);
  if (caller_wait_.wait([this, count] { return done_.load(std::memory_order_acquire) == count; })) return;
  for (uint32_t done = done_.load(std::memory_order_acquire); done != count; done = done_.load(std::memory_order_acquire)) {
    done_.wait(done, std::memory_order_acquire);
  }
}

void ThreadPool::take_tasks(uint32_t generation, int thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(ticket >> 32) == generation) {
    const Function function = function_.load(std::memory_order_acquire);
    void* const context = context_.load(std::memory_order_acquire);
    const uint32_t count = tasks_.load(std::memory_order_acquire);
    const uint32_t task = static_cast<uint32_t>(ticket);
    if (task >= count) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    function(context, task, thread);
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) done_.notify_one();
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(int thread) {
  use_exact_float_environment();
  QuickWait quick;
  uint32_t seen = 0;
  for (;;) {
    if (!quick.wait([this, seen] { return generation_.load(std::memory_order_acquire) != seen; })) {
      sleepers_.fetch_add(1);
      generation_.wait(seen);
      sleepers_.fetch_sub(1);
    }
    // In this order: a thread that has seen the generation of the pool's end must not wait for another one.
    seen = generation_.load();
    if (stopping_.load()) return;
    take_tasks(seen, thread);
  }
}

}  // namespace odmoe::cpu
