// Events keep the orders of FluxMoE's algorithm 1 between the writers of experts (load lanes) and their readers (the compute
// stream); SlotMemory decides where a slot's memory is mapped. Threads: begin_load runs where loads are asked for (a daemon's event
// loop). It calls no CUDA function, and neither does end_load of a load that was given up. The first loader thread that writes to a
// slot waits for its earlier users and moves it (begin_write); other writers of the slot wait there. The executor's begin_read and
// end_read only order work, and wait for nothing.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "device_context.h"
#include "load_lanes.h"
#include "odmoe/expert_memory.h"
#include "slot_memory.h"

namespace odmoe::cuda {

class PagedExpertMemory;

// The expert memories of a device: writers find the memory and the slot of an address here. May be called from any thread.
class ExpertMemoryDirectory {
 public:
  // The memory and its slot in which this address lies; null: in none.
  struct Found {
    PagedExpertMemory* memory = nullptr;
    int slot = 0;
  };
  Found find(const void* address) const;

 private:
  friend class PagedExpertMemory;
  void add(PagedExpertMemory* memory);
  void remove(PagedExpertMemory* memory);

  mutable std::mutex mutex_;
  std::vector<PagedExpertMemory*> memories_;
};

class PagedExpertMemory final : public ExpertMemory {
 public:
  // Context and directory must outlive it.
  PagedExpertMemory(const DeviceContext& context, ExpertMemoryDirectory& directory, std::unique_ptr<SlotMemory> memory, int slots);
  // Waits for the device.
  ~PagedExpertMemory() override;
  PagedExpertMemory(const PagedExpertMemory&) = delete;
  PagedExpertMemory& operator=(const PagedExpertMemory&) = delete;

  ExpertPages begin_load(int slot, int64_t expert) override;
  void end_load(int slot, bool whole) override;
  void begin_read(int slot) override;
  void end_read(int slot) override;
  PageState state(int slot) const override { return at(slot).state; }
  void let_go(int slot) override;
  void take(int slot) override;

  // To be called before and after a lane's writes to the slot, within its load or behind it; several threads may call them at a time.
  // begin_write throws DEVICE_OUT_OF_MEMORY or DEVICE_LOST in each thread if the slot cannot be mapped at its place.
  void begin_write(int slot, const LoadLane& lane);
  void end_write(int slot, const LoadLane& lane);
  // The slot in which the address lies; -1: none.
  int slot_of(const void* address) const;

 private:
  struct Slot {
    std::atomic<PageState> state = PageState::unmapped;
    ExpertPages pages;                                   // guarded by the memory's mutex
    cudaEvent_t read = nullptr;                          // the compute stream's last use of the slot
    std::array<cudaEvent_t, kLoadLanes> written = {};    // each lane's last write
    std::array<std::atomic<bool>, kLoadLanes> writes{};  // lanes that have written since the load began
    std::mutex mutex;                                    // held while the slot is made ready; guards the next two members
    bool pending = false;                                // a place is claimed, but the slot is not mapped there yet
    std::exception_ptr failure;                          // the reason why it cannot be; until the next load
    // Atomic, because a lower slice is written while the slot is in use.
    std::atomic<bool> has_been_read = false;
    std::atomic<bool> ordered = false;  // the compute stream already waits for the writes
    // Not atomic. Uses and whole loads of a slot exclude each other, so that ExpertSlots' mutex orders the executor and the loader's
    // threads. Within a load the mutex above orders the thread that makes the slot ready before all threads that write to it.
    bool reading = false;  // begin_read came without its end_read: an operator has failed
  };

  Slot& at(int slot) { return slots_[static_cast<size_t>(slot)]; }
  const Slot& at(int slot) const { return slots_[static_cast<size_t>(slot)]; }
  // Moves the slot to the place that its load has claimed, when nothing uses the slot any more. Runs once per load.
  void make_ready(int slot);
  // Gives up the claim of a load that has not made the slot ready.
  void stay(int slot);
  void wait_for_writes(Slot& slot);
  void wait_for_reads(Slot& slot);
  void destroy_events() noexcept;

  const DeviceContext& context_;
  ExpertMemoryDirectory& directory_;
  std::unique_ptr<SlotMemory> memory_;
  std::vector<Slot> slots_;
  mutable std::mutex mutex_;
};

}  // namespace odmoe::cuda
