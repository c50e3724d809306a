// The thread pool runs every task exactly once, with any number of threads, and sleeping workers wake up.
#include "../src/backends/cpu/thread_pool.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "native_tests.h"

namespace odmoe::test {
namespace {

void runs_every_task_once(int threads) {
  cpu::ThreadPool pool(threads);
  check(pool.threads() == threads, "threads");
  for (int round = 0; round < 300; ++round) {
    const int64_t tasks = round % 37;
    std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
    std::atomic<bool> thread_in_range{true};
    pool.run(tasks, [&](int64_t task, int thread) {
      runs[static_cast<size_t>(task)].fetch_add(1);
      if (thread < 0 || thread >= threads) thread_in_range = false;
    });
    for (const std::atomic<int>& count : runs) check(count.load() == 1, "a task ran " + std::to_string(count.load()) + " times");
    check(thread_in_range.load(), "thread index");
    // Sometimes long enough for the workers to fall asleep.
    if (round % 50 == 49) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

// Workers finish late while the next, larger run begins: none may take its tasks with a ticket of the previous run.
void runs_follow_closely(int threads) {
  cpu::ThreadPool pool(threads);
  std::vector<std::atomic<int>> runs(8);
  for (int round = 0; round < 200000; ++round) {
    const int64_t tasks = 2 + round % 7;
    for (std::atomic<int>& count : runs) count.store(0, std::memory_order_relaxed);
    pool.run(tasks, [&](int64_t task, int) { runs[static_cast<size_t>(task)].fetch_add(1); });
    for (int64_t task = 0; task < 8; ++task) {
      const int count = runs[static_cast<size_t>(task)].load();
      check(count == (task < tasks ? 1 : 0), "task " + std::to_string(task) + " of " + std::to_string(tasks) + " ran " +
                                                 std::to_string(count) + " times in round " + std::to_string(round));
    }
  }
}

// Threads that wake up late for a run find the pool at its end: each must notice, or the pool waits for it forever.
void pools_end_right_after_a_run(int threads) {
  for (int round = 0; round < 3000; ++round) {
    std::atomic<int> runs{0};
    {
      cpu::ThreadPool pool(threads);
      pool.run(4, [&](int64_t, int) { runs.fetch_add(1); });
      if (round % 3 == 0) std::this_thread::yield();
      pool.run(4, [&](int64_t, int) { runs.fetch_add(1); });
    }
    check(runs.load() == 8, "runs of a pool that ends");
  }
}

// More threads than cores and gaps of all lengths between runs: threads spin in vain, sleep, and are woken; no run may hang, and
// the tasks of a run see the writes of the previous run.
void crowded_pools(int pools, int threads) {
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < pools; ++caller) {
    callers.emplace_back([threads, caller, &wrong] {
      cpu::ThreadPool pool(threads);
      std::vector<int64_t> values(16, 0);
      for (int round = 0; round < 3000; ++round) {
        pool.run(16, [&](int64_t task, int) { values[static_cast<size_t>(task)] += (task + round) % 3; });
        if (round % 97 == caller) std::this_thread::sleep_for(std::chrono::microseconds(round % 200));
      }
      for (int64_t task = 0; task < 16; ++task) {
        // Three rounds one after another add 0, 1 and 2, in some order.
        if (values[static_cast<size_t>(task)] != 3000) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  check(wrong.load() == 0, std::to_string(wrong.load()) + " sums are wrong");
}

}  // namespace

void add_thread_pool_cases(std::vector<Case>& cases) {
  for (const int threads : {1, 2, 3, 8}) {
    cases.push_back(
        {"thread pool: every task once, " + std::to_string(threads) + " threads", [threads] { runs_every_task_once(threads); }});
    cases.push_back(
        {"thread pool: close runs, " + std::to_string(threads) + " threads", [threads] { runs_follow_closely(threads); }});
  }
  for (const int threads : {2, 4}) {
    cases.push_back({"thread pool: ends right after a run, " + std::to_string(threads) + " threads",
                     [threads] { pools_end_right_after_a_run(threads); }});
  }
  cases.push_back({"thread pool: 3 pools of 4 threads at a time", [] { crowded_pools(3, 4); }});
}

}  // namespace odmoe::test
