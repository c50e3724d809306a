// Where the memory of experts' slots comes from: mapped under the address of the expert that is in the slot, or buffers that stay where
// they are. Which reads and writes must be over before a slot may move is the caller's (PagedExpertMemory).
#pragma once
#include <cstdint>
#include <memory>

#include "device_arena.h"
#include "odmoe/expert_memory.h"

namespace odmoe::cuda {

class SlotMemory {
 public:
  virtual ~SlotMemory() = default;
  // Whether the slot may come to stand elsewhere than now; then nothing may be using it any more.
  virtual bool moves(int slot, int64_t expert) const = 0;
  // The slot under the expert's address, or under its own: for kNoExpert, and for an expert that another slot stands under. Throws
  // DEVICE_OUT_OF_MEMORY or DEVICE_LOST, and the slot stands nowhere. Calls for different slots may overlap.
  virtual ExpertPages place(int slot, int64_t expert) = 0;
};

// Both zeroed. Throw DEVICE_OUT_OF_MEMORY.
std::unique_ptr<SlotMemory> make_fixed_slots(DeviceArena& arena, const ExpertMemoryShape& shape);
std::unique_ptr<SlotMemory> make_mapped_slots(DeviceArena& arena, int device, uint64_t granularity, const ExpertMemoryShape& shape);

// What a slot takes of the budget where memory is mapped in units of `granularity`.
inline uint64_t mapped_bytes(uint64_t bytes, uint64_t granularity) { return (bytes + granularity - 1) / granularity * granularity; }

}  // namespace odmoe::cuda
