// Where the memory of experts' slots comes from: mapped under the address of the expert that is in the slot, or buffers that stay where
// they are. Which reads and writes must be over before a slot may move is the caller's (PagedExpertMemory).
// A slot moves in two steps, so that who asks for an expert knows its addresses at once and need not wait for the driver: a place is
// claimed, and later the slot moves there. From any thread; calls for one slot do not overlap, for different slots they may.
#pragma once
#include <cstdint>
#include <memory>

#include "device_arena.h"
#include "odmoe/expert_memory.h"

namespace odmoe::cuda {

class SlotMemory {
 public:
  virtual ~SlotMemory() = default;
  // The place where the slot will stand, which no other slot gets from here on: the expert's addresses, or the slot's own, for kNoExpert
  // and for an expert under whose addresses another slot stands or is to stand. Asks nothing of the driver. move() or give_up_claim()
  // comes before the slot's next claim.
  virtual ExpertPages claim(int slot, int64_t expert) = 0;
  // Whether move() will take the slot elsewhere; then nothing may be using it any more.
  virtual bool moves(int slot) const = 0;
  // To the place claimed. Asks the driver, and waits for it. Throws DEVICE_OUT_OF_MEMORY or DEVICE_LOST: what the slot's memory held
  // is gone then, and the claim stays until it is given up.
  virtual void move(int slot) = 0;
  // The slot stays where it stands, and the place claimed is free unless that is the same. Asks nothing of the driver.
  virtual void give_up_claim(int slot) = 0;
  // Gives the slot's memory back, and takes it again; nothing is claimed, and nothing uses it. Ask the driver. take() throws
  // DEVICE_OUT_OF_MEMORY; the slot is then without memory.
  virtual void let_go(int slot) = 0;
  virtual void take(int slot) = 0;
};

// Both zeroed. Throw DEVICE_OUT_OF_MEMORY.
std::unique_ptr<SlotMemory> make_fixed_slots(DeviceArena& arena, const ExpertMemoryShape& shape);
std::unique_ptr<SlotMemory> make_mapped_slots(DeviceArena& arena, int device, uint64_t granularity, const ExpertMemoryShape& shape);

// What a slot takes of the budget where memory is mapped in units of `granularity`.
inline uint64_t mapped_bytes(uint64_t bytes, uint64_t granularity) { return (bytes + granularity - 1) / granularity * granularity; }

}  // namespace odmoe::cuda
