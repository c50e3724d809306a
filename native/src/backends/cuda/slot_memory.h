// The memory of experts' slots: physical memory that is mapped at the address of the slot's expert, or buffers that stay where they
// are. The caller (PagedExpertMemory) waits for the reads and writes that must end before a slot moves. A slot moves in two steps:
// first a place is claimed, and later the slot moves there. So the code that asks for an expert knows its addresses at once and
// need not wait for the driver. Calls may come from any thread; calls for one slot do not overlap, calls for different slots may.
#pragma once
#include <cstdint>
#include <memory>

#include "device_arena.h"
#include "odmoe/expert_memory.h"

namespace odmoe::cuda {

class SlotMemory {
 public:
  virtual ~SlotMemory() = default;
  // Claims and returns the place where the slot will be mapped; no other slot gets it from now on. It is the expert's addresses, or
  // the slot's own for kNoExpert and where another slot is mapped, or will be mapped, at the expert's addresses. Does not call the
  // driver. move() or give_up_claim() must come before the slot's next claim.
  virtual ExpertPages claim(int slot, int64_t expert) = 0;
  // True if move() will change the slot's place; then nothing may use the slot any more.
  virtual bool moves(int slot) const = 0;
  // Moves the slot to the claimed place. Calls the driver, and waits for it. Throws DEVICE_OUT_OF_MEMORY or DEVICE_LOST: the slot's
  // contents are then lost, and the claim stays until it is given up.
  virtual void move(int slot) = 0;
  // The slot stays where it is mapped, and the claimed place becomes free unless it is the same place. Does not call the driver.
  virtual void give_up_claim(int slot) = 0;
  // let_go gives the slot's memory back, take allocates it again; both need a slot without a claim or a user, and call the driver.
  // take() throws DEVICE_OUT_OF_MEMORY; the slot then stays without memory.
  virtual void let_go(int slot) = 0;
  virtual void take(int slot) = 0;
};

// The memory of both is zeroed. Both throw DEVICE_OUT_OF_MEMORY.
std::unique_ptr<SlotMemory> make_fixed_slots(DeviceArena& arena, const ExpertMemoryShape& shape);
std::unique_ptr<SlotMemory> make_mapped_slots(DeviceArena& arena, int device, uint64_t granularity, const ExpertMemoryShape& shape);

// Bytes of the budget that `bytes` take where memory is mapped in units of `granularity`.
inline uint64_t mapped_bytes(uint64_t bytes, uint64_t granularity) { return (bytes + granularity - 1) / granularity * granularity; }

}  // namespace odmoe::cuda
