// The orders of FluxMoE's algorithm 1 between what writes experts (load lanes) and what reads them (the compute stream), kept by events;
// where a slot's memory stands is SlotMemory's.
// Who does what: begin_load, where loads are asked for (a daemon's event loop), and end_load of a load that was given up ask nothing of
// CUDA. What must be over before the slot may move is waited for, and the slot moves, on the loader's thread that is the first to write
// to it (begin_write); others that are to write to it wait there. The executor's begin_read and end_read order, and wait for nothing.
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

// The expert memories of a device, for who writes to an address and must know whose it is. From any thread.
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

  // Around what a lane writes to the slot, within its load; from several threads at a time. begin_write throws DEVICE_OUT_OF_MEMORY or
  // DEVICE_LOST to each of them where the slot cannot stand where it should.
  void begin_write(int slot, const LoadLane& lane);
  void end_write(int slot, const LoadLane& lane);
  // The slot in which the address lies; -1: none.
  int slot_of(const void* address) const;

 private:
  struct Slot {
    std::atomic<PageState> state = PageState::unmapped;
    ExpertPages pages;                                   // guarded by the memory's mutex
    cudaEvent_t read = nullptr;                          // the compute stream's last use of it
    std::array<cudaEvent_t, kLoadLanes> written = {};    // the lanes' last ones
    std::array<std::atomic<bool>, kLoadLanes> writes{};  // since the load began
    std::mutex mutex;                                    // held while the slot is made ready; guards the two below
    bool pending = false;                                // a place is claimed, and the slot does not stand there yet
    std::exception_ptr failure;                          // why it cannot; until the next load
    // Plain: uses and loads of a slot exclude each other, which orders the executor and the loader's threads (ExpertSlots' mutex), and
    // within a load the mutex above orders who makes the slot ready before all who write to it.
    bool has_been_read = false;
    bool reading = false;  // begin_read without its end_read: an operator has failed
    bool ordered = false;  // the compute stream has been told to wait for the writes
  };

  Slot& at(int slot) { return slots_[static_cast<size_t>(slot)]; }
  const Slot& at(int slot) const { return slots_[static_cast<size_t>(slot)]; }
  // To where the load that has begun claimed a place, when nothing uses the slot any more. Once for each load.
  void make_ready(int slot);
  // Ends the claim of a load that has not made the slot ready.
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
