#include <vector>

#include "slot_memory.h"

namespace odmoe::cuda {
namespace {

class FixedSlots final : public SlotMemory {
 public:
  FixedSlots(DeviceArena& arena, const ExpertMemoryShape& shape)
      : arena_(arena), shape_(shape), pages_(static_cast<size_t>(shape.slots)) {
    try {
      for (int slot = 0; slot < shape.slots; ++slot) take(slot);
    } catch (...) {
      release();
      throw;
    }
  }
  ~FixedSlots() override { release(); }
  FixedSlots(const FixedSlots&) = delete;
  FixedSlots& operator=(const FixedSlots&) = delete;

  ExpertPages claim(int slot, int64_t) override { return pages_[static_cast<size_t>(slot)]; }
  bool moves(int) const override { return false; }
  void move(int) override {}
  void give_up_claim(int) override {}

  void let_go(int slot) override {
    ExpertPages& pages = pages_[static_cast<size_t>(slot)];
    arena_.release(pages.gate_up);
    arena_.release(pages.down);
  }

  void take(int slot) override {
    ExpertPages& pages = pages_[static_cast<size_t>(slot)];
    try {
      if (pages.gate_up.data == nullptr) pages.gate_up = arena_.allocate(shape_.gate_up_bytes);
      if (pages.down.data == nullptr) pages.down = arena_.allocate(shape_.down_bytes);
    } catch (...) {
      let_go(slot);
      throw;
    }
  }

 private:
  void release() noexcept {
    for (ExpertPages& pages : pages_) {
      arena_.release(pages.gate_up);
      arena_.release(pages.down);
    }
  }

  DeviceArena& arena_;
  const ExpertMemoryShape shape_;
  std::vector<ExpertPages> pages_;
};

}  // namespace

std::unique_ptr<SlotMemory> make_fixed_slots(DeviceArena& arena, const ExpertMemoryShape& shape) {
  return std::make_unique<FixedSlots>(arena, shape);
}

}  // namespace odmoe::cuda
