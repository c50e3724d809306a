// Memory for experts under addresses of their own (FluxMoE, section 4.1, PagedTensor): every expert tensor has a fixed place in a
// reserved range of addresses, and a slot is physical memory that is mapped there while it holds the expert. A device without such
// memory has plain buffers, one address for each slot.
// Threading: calls for one slot do not overlap; for different slots they may. begin_load comes from where loads are asked for (a daemon's
// event loop) and waits for nothing; end_load from there or from a loader's thread; begin_read and end_read from the executor. A slot's
// memory is moved by the loader's thread that is the first to write to it (Backend::write_rows, write_coded_rows).
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

// The life of a slot's pages. Evicting: not to be used any more, but what has been asked of it before may still be reading; a load has
// begun, but nothing has been written. Loading: the memory stands where the load wants it.
enum class PageState : uint8_t { unmapped, loading, resident, evicting };

inline constexpr int64_t kNoExpert = -1;

struct ExpertPages {
  DeviceBuffer gate_up;
  DeviceBuffer down;
};

class ExpertMemory {
 public:
  virtual ~ExpertMemory() = default;

  // To evicting, and with the first write to loading (at once where nothing can still be reading). The slot's memory will then stand under
  // the addresses of `expert` (kNoExpert, or one under whose addresses another slot stands or is to stand at the time: under the slot's
  // own). Rows are written there by the backend's write_rows and write_coded_rows, in any format but fixed4, behind all reads of what the
  // slot held before (write after read). Where the memory cannot be moved every write throws DEVICE_OUT_OF_MEMORY or DEVICE_LOST, and
  // the load must end as a failed one.
  virtual ExpertPages begin_load(int slot, int64_t expert) = 0;
  // All writes have been asked for. To resident, or, where the load has failed or was given up, to unmapped. Throws nothing: a slot that
  // nothing was written to is moved here, and if it cannot be, begin_read throws.
  virtual void end_load(int slot, bool whole) = 0;
  // Operators between these two are ordered behind the slot's writes (read after write), and its next writes behind them.
  virtual void begin_read(int slot) = 0;
  virtual void end_read(int slot) = 0;

  // Each of two slots has the other's memory from now on, with what is in it. Neither is being loaded or used. Throws INTERNAL where slots
  // keep theirs, as they do unless a memory says otherwise.
  virtual void exchange(int slot, int other);

  virtual PageState state(int slot) const = 0;

  // Gives a slot's memory back to the device, and takes it again; what the slot held is gone. Not while the slot is loaded or used. Both do
  // nothing where it is so already. `take` throws DEVICE_OUT_OF_MEMORY, and the slot is then without memory as before.
  virtual void let_go(int slot) = 0;
  virtual void take(int slot) = 0;
};

}  // namespace odmoe
