// Device memory: budget, alignment, zeroing, counting; and the choice of instruction set.
#include <cstdlib>
#include <cstring>
#include <thread>

#include "native_tests.h"

namespace odmoe::test {
namespace {

void refuses_beyond_budget() {
  auto backend = open_backend("scalar", 1, 1000);
  DeviceBuffer first = backend->allocate(600);
  check_refused(ErrorCode::device_out_of_memory, [&] { backend->allocate(401); });
  DeviceBuffer second = backend->allocate(400);
  check(backend->info().used_bytes == 1000, "used bytes");
  backend->release(first);
  check(first.data == nullptr && first.bytes == 0, "a released buffer is empty");
  backend->release(first);
  check(backend->info().used_bytes == 400, "used bytes after release");
  check(backend->info().high_water_bytes == 1000, "high water");
  check_refused(ErrorCode::device_out_of_memory, [&] { backend->allocate(UINT64_MAX); });
  check(backend->info().used_bytes == 400, "a refusal takes nothing");
  backend->release(second);
}

void refuses_what_the_system_lacks() {
  auto backend = open_backend("scalar");
  for (const uint64_t bytes : {uint64_t{1} << 60, UINT64_MAX - 1, UINT64_MAX}) {
    check_refused(ErrorCode::device_out_of_memory, [&] { backend->allocate(bytes); });
  }
  check(backend->info().used_bytes == 0, "a refusal takes nothing");
  check(backend->info().high_water_bytes == 0, "a refusal leaves no high water");
}

void gives_zeroed_aligned_memory() {
  auto backend = open_backend("scalar");
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{63}, uint64_t{4096}, uint64_t{1} << 21, (uint64_t{5} << 20) + 3}) {
    for (int round = 0; round < 3; ++round) {
      DeviceBuffer buffer = backend->allocate(bytes);
      check(reinterpret_cast<uintptr_t>(buffer.data) % 64 == 0, "alignment of " + std::to_string(bytes));
      const uint8_t* data = static_cast<const uint8_t*>(buffer.data);
      for (uint64_t i = 0; i < bytes; ++i) check(data[i] == 0, "not zeroed: byte " + std::to_string(i));
      std::memset(buffer.data, 0xff, bytes);
      backend->release(buffer);
    }
  }
  check(backend->allocate(0).data == nullptr, "nothing for no bytes");
}

void counts_across_threads() {
  auto backend = open_backend("scalar", 1, 4000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        DeviceBuffer buffer = backend->allocate(1000);
        backend->release(buffer);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  check(backend->info().used_bytes == 0, "used bytes");
  check(backend->info().high_water_bytes <= 4000, "high water within the budget");
}

void chooses_instruction_set() {
  check_refused(ErrorCode::device_unavailable, [] { open_backend("sse9"); });
  const std::vector<std::string> sets = instruction_sets();
  check(sets.back() == "scalar", "scalar is always there");
  const char* before = std::getenv("ODMOE_INSTRUCTION_SET");
  const std::string saved = before == nullptr ? "" : before;
  unsetenv("ODMOE_INSTRUCTION_SET");
  check(open_backend("auto")->info().instruction_set == sets.front(), "auto takes the widest");
  setenv("ODMOE_INSTRUCTION_SET", "scalar", 1);
  check(open_backend("auto")->info().instruction_set == "scalar", "the environment overrides auto");
  check(open_backend(sets.front())->info().instruction_set == sets.front(), "an explicit choice stands");
  setenv("ODMOE_INSTRUCTION_SET", "sse9", 1);
  check_refused(ErrorCode::device_unavailable, [] { open_backend("auto"); });
  if (before == nullptr) {
    unsetenv("ODMOE_INSTRUCTION_SET");
  } else {
    setenv("ODMOE_INSTRUCTION_SET", saved.c_str(), 1);
  }
}

}  // namespace

void add_arena_cases(std::vector<Case>& cases) {
  cases.push_back({"device memory: refuses beyond its budget", refuses_beyond_budget});
  cases.push_back({"device memory: refuses what the system lacks", refuses_what_the_system_lacks});
  cases.push_back({"device memory: zeroed and aligned", gives_zeroed_aligned_memory});
  cases.push_back({"device memory: counts across threads", counts_across_threads});
  cases.push_back({"device: chooses the instruction set", chooses_instruction_set});
}

}  // namespace odmoe::test
