#include "plain_expert_memory.h"

#include <utility>

namespace odmoe {

PlainExpertMemory::PlainExpertMemory(Backend& backend, const ExpertMemoryShape& shape)
    : backend_(backend), shape_(shape), slots_(static_cast<size_t>(shape.slots)) {
  try {
    for (Slot& slot : slots_) allocate(slot);
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

// Allocates the missing buffers of a slot; existing ones stay.
void PlainExpertMemory::allocate(Slot& slot) {
  if (slot.pages.gate_up.data == nullptr) slot.pages.gate_up = backend_.allocate(shape_.gate_up_bytes);
  if (slot.pages.down.data == nullptr) slot.pages.down = backend_.allocate(shape_.down_bytes);
}

void PlainExpertMemory::let_go(int index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  backend_.release(slot.pages.gate_up);
  backend_.release(slot.pages.down);
  slot.state = PageState::unmapped;
}

void PlainExpertMemory::take(int index) {
  try {
    allocate(slots_[static_cast<size_t>(index)]);
  } catch (...) {
    let_go(index);
    throw;
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

void PlainExpertMemory::exchange(int slot, int other) {
  std::swap(slots_[static_cast<size_t>(slot)].pages, slots_[static_cast<size_t>(other)].pages);
}

PageState PlainExpertMemory::state(int slot) const { return slots_[static_cast<size_t>(slot)].state; }

}  // namespace odmoe
