// The emulated device: when its work ends (on a virtual clock), what its memory counts, what ends a wait.
#include "odmoe/emulation.h"

#include <array>
#include <string>
#include <thread>

#include "../src/backends/emulated/profiled_memory.h"
#include "../src/backends/emulated/virtual_timeline.h"
#include "native_tests.h"
#include "odmoe/device.h"
#include "odmoe/error.h"
#include "odmoe/event_time.h"

namespace odmoe::test {
namespace {

using emulated::ProfiledMemory;
using emulated::VirtualTimeline;
using Clock = VirtualTimeline::Clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

Clock::time_point at(int64_t us) { return Clock::time_point(microseconds(us)); }

void wakeups_do_not_add_up() {
  VirtualTimeline timeline;
  timeline.begin(at(1000));
  // Each piece's arithmetic is done a little after the thread has woken up late from the one before.
  for (int64_t layer = 1; layer <= 1000; layer++) {
    const auto end = timeline.end_of(milliseconds(10), at(1000 + (layer - 1) * 10000 + 900));
    check(end == at(1000 + layer * 10000), "layer " + std::to_string(layer) + " ends late");
  }
}

void queued_work_follows_at_once() {
  VirtualTimeline timeline;
  timeline.begin(at(0));
  timeline.end_of(milliseconds(10), at(100));
  timeline.begin(at(4000));  // asked for while the first one was under way
  check(timeline.end_of(milliseconds(10), at(10300)) == at(20000), "work begins when the thread does");
  timeline.begin(at(25000));
  check(timeline.end_of(milliseconds(10), at(25300)) == at(35000), "work begins before it was asked for");
}

void slow_arithmetic_moves_time_on() {
  VirtualTimeline timeline;
  timeline.begin(at(0));
  check(timeline.end_of(milliseconds(10), at(13000)) == at(13000), "work ends before its arithmetic");
  check(timeline.end_of(milliseconds(10), at(14000)) == at(23000), "lost time is made up for");
}

void work_given_up_frees_the_device() {
  VirtualTimeline timeline;
  timeline.begin(at(0));
  timeline.end_of(milliseconds(10), at(100));
  timeline.give_up(at(2000));
  timeline.begin(at(2500));
  check(timeline.end_of(milliseconds(10), at(2600)) == at(12500), "the device is busy with what was given up");
  timeline.give_up(at(50000));
  timeline.begin(at(0));
  check(timeline.end_of(milliseconds(1), at(0)) == at(13500), "giving up makes the device busy");
}

constexpr Emulation kEmulation{.dense_layer = {1, 2, 3},
                               .expert = {2, 30, 4},
                               .lm_head = {1, 1, 1},
                               .load_ms = 20,
                               .outer_bytes = 1000,
                               .dense_layer_bytes = 100,
                               .expert_bytes = 70,
                               .slot_bytes = 60,
                               .slots_shared_bytes = 7,
                               .key_value_row_bytes = 2};

void memory_is_the_profiled_models() {
  ProfiledMemory memory(kEmulation, 2000);
  memory.hold(Holding::outer_weights, 1);
  memory.hold(Holding::dense_layer, 1);
  memory.hold(Holding::key_value_row, 256);
  check(memory.used_bytes() == 1612, "used bytes");
  std::string message;
  try {
    memory.hold(Holding::key_value_row, 256);
  } catch (const Error& error) {
    check(error.code() == "DEVICE_OUT_OF_MEMORY", error.code());
    message = error.what();
  }
  check(message.find("needs 512 bytes") != std::string::npos, "the message does not name the need: " + message);
  check(memory.used_bytes() == 1612 && memory.high_water_bytes() == 1612, "what is refused is counted");
  memory.hold(Holding::slot, 5);
  memory.hold(Holding::slots_shared, 1);
  memory.hold(Holding::expert, 1);
  check(memory.used_bytes() == 1989, "used bytes with slots and an expert");
  memory.let_go(Holding::key_value_row, 256);
  check(memory.used_bytes() == 1477 && memory.high_water_bytes() == 1989, "memory that was let go");
  ProfiledMemory unlimited(kEmulation, 0);
  unlimited.hold(Holding::outer_weights, 1'000'000);
  check(unlimited.used_bytes() == 1'000'000'000, "a budget of 0 limits");
}

std::shared_ptr<Backend> open_emulated(uint64_t budget_bytes = 0) {
  return make_emulated_backend(open_backend("auto"), kEmulation, budget_bytes);
}

void held_memory_is_given_back() {
  const auto backend = open_emulated(200);
  {
    Held first(backend, Holding::dense_layer);
    Held second = std::move(first);
    check(first.empty() && !second.empty(), "moved");
    check(backend->info().used_bytes == 100, "held once");
    check_refused("DEVICE_OUT_OF_MEMORY", [&] { Held(backend, Holding::slot, 2); });
    second = Held(backend, Holding::slot);
    check(backend->info().used_bytes == 60, "what was overwritten is given back");
  }
  check(backend->info().used_bytes == 0 && backend->info().high_water_bytes == 160, "given back");
  const DeviceMemory real(backend, 1 << 20);
  check(backend->info().used_bytes == 0, "the processor's memory counts");
  check(backend->info().backend == "emulated" && backend->info().budget_bytes == 200, "info");
}

void waits_for_the_profiled_end() {
  const auto backend = open_emulated();
  Interruption never;
  const auto asked = Clock::now();
  backend->begin_work(asked);
  const int rows = 4;
  backend->await_end(Work::dense_layer, {&rows, 1}, never);
  check(Clock::now() >= asked + milliseconds(13), "a dense layer takes 1 + max(2, 4 x 3) ms");
  const std::array<int, 2> experts = {1, 8};
  backend->await_end(Work::expert, experts, never);
  check(Clock::now() >= asked + milliseconds(13 + 32 + 34), "experts take 2 + max(30, rows x 4) ms, one after the other");
}

void a_wait_can_be_ended() {
  Emulation slow = kEmulation;
  slow.expert = {.overhead_ms = 3.6e6, .weights_ms = 0, .row_ms = 0};
  const auto backend = std::shared_ptr<Backend>(make_emulated_backend(open_backend("auto"), slow, 0));
  Interruption interruption;
  std::thread raising([&] {
    std::this_thread::sleep_for(milliseconds(5));
    interruption.raise();
  });
  const int rows = 1;
  backend->begin_work(Clock::now());
  backend->await_end(Work::expert, {&rows, 1}, interruption);  // for an hour, if it is not ended
  raising.join();
  check(interruption.is_raised(), "it was raised");
  interruption.clear();
  backend->begin_work(Clock::now());
  backend->await_end(Work::dense_layer, {&rows, 1}, interruption);  // not after the hour that was given up
}

void what_follows_counts_from_the_event() {
  const EventTime event = at(1000);
  check(counts_from(event, at(1000)) == event && counts_from(event, at(3000)) == event, "noticed late, but in time");
  check(counts_from(event, at(3001)) == at(3001), "an event that is long past is not in hand");
  check(counts_from(event, at(999)) == at(999), "what is to come has not happened");
  check(counts_from(std::nullopt, at(5)) == at(5), "nothing in hand");
  // A thread of its own, as what is in hand is the thread's.
  std::thread handling([] {
    come_to_event(std::nullopt);
    check(!event_in_hand().has_value(), "nothing has happened yet");
    come_to_event(at(1000));
    come_to_event(at(700));  // noticed last: of two results that are waited for, the later one counts
    check(event_in_hand() == at(1000), "time goes back");
    come_to_event(std::nullopt);
    come_to_event(at(1200));
    check(event_in_hand() == at(1200), "the latest event is in hand");
  });
  handling.join();
}

}  // namespace

void add_emulation_cases(std::vector<Case>& cases) {
  cases.push_back({"emulation: late wake-ups do not add up", wakeups_do_not_add_up});
  cases.push_back({"emulation: queued work follows at once", queued_work_follows_at_once});
  cases.push_back({"emulation: slow arithmetic moves time on", slow_arithmetic_moves_time_on});
  cases.push_back({"emulation: work given up frees the device", work_given_up_frees_the_device});
  cases.push_back({"emulation: memory is the profiled model's", memory_is_the_profiled_models});
  cases.push_back({"emulation: held memory is given back", held_memory_is_given_back});
  cases.push_back({"emulation: waits for the profiled end", waits_for_the_profiled_end});
  cases.push_back({"emulation: a wait can be ended", a_wait_can_be_ended});
  cases.push_back({"emulation: what follows counts from the event", what_follows_counts_from_the_event});
}

}  // namespace odmoe::test
