#include "paged_expert_memory.h"

#include <algorithm>
#include <utility>

#include "cuda_error.h"

namespace odmoe::cuda {

ExpertMemoryDirectory::Found ExpertMemoryDirectory::find(const void* address) const {
  const std::lock_guard lock(mutex_);
  for (PagedExpertMemory* memory : memories_) {
    const int slot = memory->slot_of(address);
    if (slot >= 0) return {memory, slot};
  }
  return {};
}

void ExpertMemoryDirectory::add(PagedExpertMemory* memory) {
  const std::lock_guard lock(mutex_);
  memories_.push_back(memory);
}

void ExpertMemoryDirectory::remove(PagedExpertMemory* memory) {
  const std::lock_guard lock(mutex_);
  std::erase(memories_, memory);
}

PagedExpertMemory::PagedExpertMemory(const DeviceContext& context, ExpertMemoryDirectory& directory,
                                     std::unique_ptr<SlotMemory> memory, int slots)
    : context_(context), directory_(directory), memory_(std::move(memory)), slots_(static_cast<size_t>(slots)) {
  // Threads that wait for these events may sleep.
  constexpr unsigned kFlags = cudaEventDisableTiming | cudaEventBlockingSync;
  try {
    for (Slot& slot : slots_) {
      check(cudaEventCreateWithFlags(&slot.read, kFlags), "creating an event");
      for (cudaEvent_t& event : slot.written) check(cudaEventCreateWithFlags(&event, kFlags), "creating an event");
    }
    directory_.add(this);
  } catch (...) {
    destroy_events();
    throw;
  }
}

PagedExpertMemory::~PagedExpertMemory() {
  directory_.remove(this);
  cudaSetDevice(context_.device());
  cudaDeviceSynchronize();
  destroy_events();
}

void PagedExpertMemory::destroy_events() noexcept {
  for (Slot& slot : slots_) {
    if (slot.read != nullptr) cudaEventDestroy(slot.read);
    for (const cudaEvent_t event : slot.written) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
}

int PagedExpertMemory::slot_of(const void* address) const {
  const auto holds = [address](const DeviceBuffer& buffer) {
    const auto* const begin = static_cast<const uint8_t*>(buffer.data);
    return begin != nullptr && address >= begin && address < begin + buffer.bytes;
  };
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (holds(slots_[i].pages.gate_up) || holds(slots_[i].pages.down)) return static_cast<int>(i);
  }
  return -1;
}

// Waits for the writes of a load that was given up. The writes of a complete load ended before the expert was used.
void PagedExpertMemory::wait_for_writes(Slot& slot) {
  for (size_t lane = 0; lane < kLoadLanes; ++lane) {
    if (!slot.writes[lane].exchange(false)) continue;
    check(cudaEventSynchronize(slot.written[lane]), "waiting for an expert's weights");
  }
}

void PagedExpertMemory::wait_for_reads(Slot& slot) {
  if (slot.reading) check(cudaStreamSynchronize(context_.compute_stream()), "waiting for the device");
  slot.reading = false;
  if (slot.has_been_read) check(cudaEventSynchronize(slot.read), "waiting for the last use of an expert");
  slot.has_been_read = false;
}

ExpertPages PagedExpertMemory::begin_load(int index, int64_t expert) {
  Slot& slot = at(index);
  slot.state = PageState::evicting;
  slot.ordered = false;
  const ExpertPages pages = memory_->claim(index, expert);
  {
    const std::lock_guard lock(slot.mutex);
    slot.pending = true;
    slot.failure = nullptr;
  }
  const std::lock_guard lock(mutex_);
  slot.pages = pages;
  return pages;
}

void PagedExpertMemory::make_ready(int index) {
  Slot& slot = at(index);
  const std::lock_guard lock(slot.mutex);
  if (slot.failure != nullptr) std::rethrow_exception(slot.failure);
  if (!slot.pending) return;
  try {
    context_.enter();
    wait_for_writes(slot);
    // The host waits only if an address goes away; otherwise the lanes wait (begin_write).
    if (slot.reading || memory_->moves(index)) wait_for_reads(slot);
    memory_->move(index);
  } catch (...) {
    slot.failure = std::current_exception();
    slot.state = PageState::unmapped;
    throw;
  }
  slot.pending = false;
  slot.state = PageState::loading;
}

// Until then the pages belong to the slot, so that every lane finds, by their addresses, the slot and the reason why it has not
// moved.
void PagedExpertMemory::stay(int index) {
  Slot& slot = at(index);
  const std::lock_guard lock(slot.mutex);
  if (!slot.pending) return;
  slot.pending = false;
  {
    const std::lock_guard pages_lock(mutex_);
    slot.pages = {};
  }
  memory_->give_up_claim(index);
}

void PagedExpertMemory::end_load(int index, bool whole) {
  if (whole) {
    try {
      make_ready(index);
    } catch (...) {
      whole = false;  // begin_read throws it
    }
  }
  if (!whole) stay(index);
  at(index).state = whole ? PageState::resident : PageState::unmapped;
}

// Uses and loads of the slot are over; the device may still execute their work.
void PagedExpertMemory::let_go(int index) {
  Slot& slot = at(index);
  context_.enter();
  wait_for_writes(slot);
  wait_for_reads(slot);
  {
    const std::lock_guard lock(mutex_);
    slot.pages = {};
  }
  slot.state = PageState::unmapped;
  memory_->let_go(index);
}

void PagedExpertMemory::take(int index) {
  context_.enter();
  memory_->take(index);
}

void PagedExpertMemory::begin_write(int index, const LoadLane& lane) {
  make_ready(index);
  if (!at(index).has_been_read) return;
  check(cudaStreamWaitEvent(lane.stream, at(index).read, 0), "ordering a load behind an expert's last use");
}

void PagedExpertMemory::end_write(int index, const LoadLane& lane) {
  Slot& slot = at(index);
  const auto at_lane = static_cast<size_t>(lane.index);
  check(cudaEventRecord(slot.written[at_lane], lane.stream), "recording an event");
  slot.writes[at_lane] = true;
  slot.ordered = false;
}

void PagedExpertMemory::begin_read(int index) {
  context_.enter();
  make_ready(index);
  Slot& slot = at(index);
  slot.reading = true;
  if (slot.ordered.exchange(true)) return;
  for (size_t lane = 0; lane < kLoadLanes; ++lane) {
    if (!slot.writes[lane]) continue;
    check(cudaStreamWaitEvent(context_.compute_stream(), slot.written[lane], 0), "ordering an expert's use behind its load");
  }
}

void PagedExpertMemory::end_read(int index) {
  Slot& slot = at(index);
  check(cudaEventRecord(slot.read, context_.compute_stream()), "recording an event");
  slot.has_been_read = true;
  slot.reading = false;
}

}  // namespace odmoe::cuda
