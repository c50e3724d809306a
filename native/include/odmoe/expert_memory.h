// Memory for experts under addresses of their own (FluxMoE, section 4.1, PagedTensor): every expert tensor has a fixed place in a
// reserved range of addresses, and a slot is physical memory that is mapped there while it holds the expert. A device without such
// memory has plain buffers, one address for each slot.
// Threading: calls for one slot do not overlap; for different slots they may. begin_read and end_read come from the executor.
#pragma once
#include <cstdint>

#include "odmoe/memory.h"

namespace odmoe {

struct ExpertMemoryShape {
  int slots = 0;
  int64_t experts = 0;  // of all layers; 0: not known, every slot has but its own address
  uint64_t gate_up_bytes = 0;
  uint64_t down_bytes = 0;
};

// The life of a slot's pages. Evicting: not to be used any more, but what has been asked of it before may still be reading.
enum class PageState : uint8_t { unmapped, loading, resident, evicting };

inline constexpr int64_t kNoExpert = -1;

struct ExpertPages {
  DeviceBuffer gate_up;
  DeviceBuffer down;
};

class ExpertMemory {
 public:
  virtual ~ExpertMemory() = default;

  // To loading: the slot's memory stands under the addresses of `expert` (kNoExpert, or one that is in another slot at the time: under
  // the slot's own). Writes from here on are ordered behind all reads of what it held before (write after read).
  // Throws DEVICE_OUT_OF_MEMORY or DEVICE_LOST; the slot is then unmapped.
  virtual ExpertPages begin_load(int slot, int64_t expert) = 0;
  // All writes have been asked for. To resident, or, where the load has failed, to unmapped. Throws nothing.
  virtual void end_load(int slot, bool whole) = 0;
  // Operators between these two are ordered behind the slot's writes (read after write), and its next writes behind them.
  virtual void begin_read(int slot) = 0;
  virtual void end_read(int slot) = 0;

  virtual PageState state(int slot) const = 0;
};

}  // namespace odmoe
