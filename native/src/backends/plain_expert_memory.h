// Expert memory of a device whose operators end before they return: one plain buffer for each slot's tensor.
#pragma once
#include <atomic>
#include <vector>

#include "odmoe/backend.h"
#include "odmoe/expert_memory.h"

namespace odmoe {

class PlainExpertMemory final : public ExpertMemory {
 public:
  // The backend must outlive it. Throws DEVICE_OUT_OF_MEMORY.
  PlainExpertMemory(Backend& backend, const ExpertMemoryShape& shape);
  ~PlainExpertMemory() override;
  PlainExpertMemory(const PlainExpertMemory&) = delete;
  PlainExpertMemory& operator=(const PlainExpertMemory&) = delete;

  ExpertPages begin_load(int slot, int64_t expert) override;
  void end_load(int slot, bool whole) override;
  void begin_read(int) override {}
  void end_read(int) override {}
  void exchange(int slot, int other) override;
  PageState state(int slot) const override;
  void let_go(int slot) override;
  void take(int slot) override;

 private:
  struct Slot {
    ExpertPages pages;
    std::atomic<PageState> state = PageState::unmapped;
  };

  void allocate(Slot& slot);
  void release() noexcept;

  Backend& backend_;
  const ExpertMemoryShape shape_;
  std::vector<Slot> slots_;
};

}  // namespace odmoe
