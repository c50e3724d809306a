#include "plain_expert_memory.h"

namespace odmoe {

PlainExpertMemory::PlainExpertMemory(Backend& backend, const ExpertMemoryShape& shape)
    : backend_(backend), slots_(static_cast<size_t>(shape.slots)) {
  try {
    for (Slot& slot : slots_) {
      slot.pages.gate_up = backend_.allocate(shape.gate_up_bytes);
      slot.pages.down = backend_.allocate(shape.down_bytes);
    }
  } catch (...) {
    release();
    throw;
  }
}

PlainExpertMemory::~PlainExpertMemory() { release(); }

void PlainExpertMemory::release() noexcept {
  for (Slot& slot : slots_) {
    backend_.release(slot.pages.gate_up);
    backend_.release(slot.pages.down);
  }
}

ExpertPages PlainExpertMemory::begin_load(int slot, int64_t) {
  Slot& loaded = slots_[static_cast<size_t>(slot)];
  loaded.state = PageState::loading;
  return loaded.pages;
}

void PlainExpertMemory::end_load(int slot, bool whole) {
  slots_[static_cast<size_t>(slot)].state = whole ? PageState::resident : PageState::unmapped;
}

PageState PlainExpertMemory::state(int slot) const { return slots_[static_cast<size_t>(slot)].state; }

}  // namespace odmoe
