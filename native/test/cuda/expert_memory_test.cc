// Experts' memory: addresses, their owners, the budget. expert_paging_test.cc tests the orders of reads and writes.
#include <set>
#include <thread>

#include "loaded_expert.h"
#include "odmoe/cuda.h"
#include "odmoe/error.h"

namespace odmoe::cuda_test {
namespace {

void addresses_follow_experts(Backend& cuda) {
  const auto memory = cuda.allocate_experts(small_experts(cuda, 3, 5));
  const auto load = [&](int slot, int64_t expert) {
    const ExpertPages pages = memory->begin_load(slot, expert);
    expect(memory->state(slot) == PageState::evicting, "a slot whose load has begun");
    memory->end_load(slot, true);
    expect(memory->state(slot) == PageState::resident, "a slot that has been loaded");
    return pages;
  };
  expect(memory->state(0) == PageState::unmapped, "a new slot");
  if (!cuda.info().paged_experts) {
    expect(load(0, 1).gate_up.data == load(0, 4).gate_up.data, "without mapping a slot stays where it is");
    expect(load(1, 1).gate_up.data != load(0, 1).gate_up.data, "and is not another one");
    return;
  }
  const ExpertPages second = load(0, 2);
  std::set<void*> addresses{second.gate_up.data, second.down.data};
  for (const int64_t expert : {0, 1, 3, 4}) {
    const ExpertPages pages = load(1, expert);
    expect(addresses.insert(pages.gate_up.data).second && addresses.insert(pages.down.data).second, "experts share an address");
    expect(load(2, expert).gate_up.data != pages.gate_up.data, "two slots share an address");
  }
  const ExpertPages copy = load(1, 2);  // in slot 0 too
  expect(copy.gate_up.data != second.gate_up.data, "an expert in two slots shares its memory");
  expect(load(0, 0).gate_up.data != second.gate_up.data, "slot 0 has another expert");
  const ExpertPages again = load(2, 2);
  expect(again.gate_up.data == second.gate_up.data && again.down.data == second.down.data,
         "an expert has moved to another address");
  expect(load(2, 2).gate_up.data == second.gate_up.data, "loaded over itself");
  expect(load(0, kNoExpert).gate_up.data == load(0, 99).gate_up.data, "experts that are not known have the slot's address");
  memory->begin_load(0, 1);
  memory->end_load(0, false);
  expect(memory->state(0) == PageState::unmapped, "a failed load leaves a slot unmapped");
}

// A slot owns addresses from the start of its load until it has left them.
void addresses_are_one_slots(Backend& cuda) {
  if (!cuda.info().paged_experts) return;
  const auto memory = cuda.allocate_experts(small_experts(cuda, 3, 2));
  const auto address_of = [&](int slot, int64_t expert) { return memory->begin_load(slot, expert).gate_up.data; };
  void* const first = address_of(0, 0);
  expect(address_of(1, 0) != first, "addresses are another slot's to be");
  memory->end_load(1, false);
  memory->end_load(0, true);
  void* const second = address_of(0, 1);
  expect(address_of(1, 1) != second, "addresses are another slot's to be that stands elsewhere");
  memory->end_load(1, false);
  expect(address_of(1, 0) != first, "a slot is still under addresses that it is to leave");
  memory->end_load(1, true);
  memory->end_load(0, false);
  expect(address_of(1, 0) != first, "a slot whose load was given up is still where it was");
  memory->end_load(1, true);
  expect(address_of(2, 1) == second, "addresses are free when the load that was to have them is given up");
  memory->end_load(2, true);
  expect(address_of(0, 0) == first, "a slot may have the addresses that it is under");
  memory->end_load(0, true);
  expect(address_of(0, kNoExpert) != first && address_of(1, kNoExpert) != first, "a slot's own addresses");
  memory->end_load(0, true);
  memory->end_load(1, false);
  expect(address_of(1, 0) == first, "addresses are free when a slot has left them");
  memory->end_load(1, true);
}

// Slots exchange their experts from separate threads: no place is ever mapped twice.
void slots_swap_experts(Devices& devices) {
  constexpr int kSlots = 3;
  const auto memory = devices.cuda->allocate_experts(small_experts(*devices.cuda, kSlots, 2));
  std::vector<std::thread> threads;
  std::vector<std::string> errors(kSlots);
  for (int slot = 0; slot < kSlots; ++slot) {
    threads.emplace_back([&, slot, random = std::mt19937(devices.random())]() mutable {
      try {
        for (int i = 0; i < 200; ++i) {
          memory->begin_load(slot, static_cast<int64_t>(random() % 2));
          const bool is_whole = random() % 4 != 0;
          memory->end_load(slot, is_whole);
          expect((memory->state(slot) == PageState::resident) == is_whole, "a slot has not moved");
        }
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(slot)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) expect(error.empty(), "swapping experts: " + error);
}

// A driver counts the whole process, so a second opening of the device may find a little more memory in use.
constexpr uint64_t kContextSlack = uint64_t{64} << 20;

// Unit in which a device gives memory.
constexpr uint64_t kUnitBytes = uint64_t{2} << 20;

// Exact to the byte: all taken memory is counted, and a budget of just this size is enough.
void budget_is_exact(Devices& devices) {
  const ExpertMemoryShape shape = small_experts(*devices.cuda, 3, 7);
  const uint64_t slot_bytes = devices.cuda->expert_slot_bytes(shape);
  const uint64_t staging_bytes = 12345;
  const DeviceInfo opened = make_cuda_backend({.device = devices.device})->info();
  const uint64_t counted_staging = devices.cuda->counts_staging() ? staging_bytes : 0;
  CudaOptions options{.device = devices.device};
  options.budget_bytes = opened.used_bytes + 3 * slot_bytes + counted_staging + kContextSlack;
  const std::shared_ptr<Backend> cuda = make_cuda_backend(options);
  const DeviceInfo begun = cuda->info();
  expect(begun.used_bytes - begun.context_bytes == opened.used_bytes - opened.context_bytes,
         "two openings of a device take different amounts beside the context");
  expect(begun.context_bytes > 0, "the driver's context takes nothing");
  {
    DeviceBuffer staging = cuda->allocate_staging(staging_bytes);
    const auto memory = cuda->allocate_experts(shape);
    expect(cuda->info().used_bytes == begun.used_bytes + 3 * slot_bytes + counted_staging,
           "what slots take is not what they were said to take");
    DeviceBuffer rest = cuda->allocate((options.budget_bytes - cuda->info().used_bytes) / kUnitBytes * kUnitBytes);
    bool refused = false;
    try {
      DeviceBuffer more = cuda->allocate(kUnitBytes);
      cuda->release(more);
    } catch (const Error& error) {
      refused = error.code() == ErrorCode::device_out_of_memory;
    }
    expect(refused, "a full budget takes more");
    cuda->release(rest);
    cuda->release_staging(staging);
  }
  expect(cuda->info().used_bytes == begun.used_bytes, "slots are still counted");
  // Now the budget has room for three slots but not for four.
  const uint64_t left = options.budget_bytes - cuda->info().used_bytes - 3 * slot_bytes - counted_staging;
  DeviceBuffer filler = cuda->allocate(left / kUnitBytes * kUnitBytes);
  const uint64_t filled = cuda->info().used_bytes;
  ExpertMemoryShape too_many = shape;
  too_many.slots = 4;
  bool refused = counted_staging >= slot_bytes;
  try {
    const auto memory = cuda->allocate_experts(too_many);
  } catch (const Error& error) {
    refused = error.code() == ErrorCode::device_out_of_memory;
  }
  expect(refused, "a budget holds a slot too many");
  expect(cuda->info().used_bytes == filled, "a refusal is counted");
  const auto memory = cuda->allocate_experts(shape);
  expect(memory->begin_load(2, 6).down.bytes == shape.down_bytes, "a slot after a refusal");
  memory->end_load(2, false);
  cuda->release(filler);
}

}  // namespace

void test_expert_memory(Devices& devices) {
  addresses_follow_experts(*devices.cuda);
  addresses_are_one_slots(*devices.cuda);
  slots_swap_experts(devices);
  budget_is_exact(devices);
}

}  // namespace odmoe::cuda_test
