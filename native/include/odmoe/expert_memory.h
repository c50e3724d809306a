// Memory in which each expert has its own addresses (FluxMoE, section 4.1, PagedTensor): every expert tensor has a fixed place in a
// reserved range of addresses, and a slot is physical memory that is mapped there while it holds the expert. A device without such
// memory has plain buffers, with one address for each slot.
// Threading: calls for one slot do not overlap; for different slots they may. The thread that asks for loads (a daemon's event
// loop) calls begin_load, which waits for nothing. That thread or a loader's thread calls end_load; the executor calls begin_read
// and end_read. The first loader thread that writes to a slot moves its memory (Backend::write_rows, write_coded_rows).
#pragma once
#include <cstdint>

#include "odmoe/memory.h"

namespace odmoe {

struct ExpertMemoryShape {
  int slots = 0;
  int64_t experts = 0;  // in all layers; 0: unknown, and each slot has one fixed address
  uint64_t gate_up_bytes = 0;
  uint64_t down_bytes = 0;
};

// The states of a slot's pages. Evicting: no new use may begin, but earlier operators may still read; a load has begun, but nothing
// has been written. Loading: the memory is mapped where the load wants it.
enum class PageState : uint8_t { unmapped, loading, resident, evicting };

inline constexpr int64_t kNoExpert = -1;

struct ExpertPages {
  DeviceBuffer gate_up;
  DeviceBuffer down;
};

class ExpertMemory {
 public:
  virtual ~ExpertMemory() = default;

  // Changes the state to evicting, and with the first write to loading (at once where nothing can still be reading). The slot's
  // memory is then mapped at the addresses of `expert`. It is mapped at the slot's own addresses for kNoExpert, and where another
  // slot is mapped, or will be mapped, at the addresses of `expert`. Rows are written there by the backend's write_rows and
  // write_coded_rows, in any format but fixed4, ordered behind all reads of the slot's old contents (write after read). A lower slice
  // may be written after the load, too, while the upper one is in use; reads that begin after that write are ordered behind it. If the
  // memory cannot be moved, every write throws DEVICE_OUT_OF_MEMORY or DEVICE_LOST, and the load must end as failed.
  virtual ExpertPages begin_load(int slot, int64_t expert) = 0;
  // To be called once all writes have been asked for. Changes the state to resident, or to unmapped where the load failed or was
  // given up. It throws nothing: it moves a slot that received no write, and if that fails, begin_read throws.
  virtual void end_load(int slot, bool whole) = 0;
  // Operators between these two calls are ordered behind the slot's writes (read after write); its next writes are ordered behind
  // them.
  virtual void begin_read(int slot) = 0;
  virtual void end_read(int slot) = 0;

  // Exchanges the memory of two slots, with its contents. Neither may be loading or in use. Throws INTERNAL where slots cannot
  // exchange memory; that is the default.
  virtual void exchange(int slot, int other);

  virtual PageState state(int slot) const = 0;

  // let_go gives a slot's memory back to the device, and its contents are lost; take allocates it again. Not to be called while the
  // slot loads or is in use. Both do nothing where the slot is already in that state. `take` throws DEVICE_OUT_OF_MEMORY; the slot
  // then stays without memory.
  virtual void let_go(int slot) = 0;
  virtual void take(int slot) = 0;
};

}  // namespace odmoe
