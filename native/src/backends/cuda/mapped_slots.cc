// Slots of physical memory that is mapped at the addresses of the slot's expert (FluxMoE, section 4.1).
#include <array>
#include <mutex>
#include <vector>

#include "driver_api.h"
#include "slot_memory.h"

namespace odmoe::cuda {
namespace {

constexpr size_t kTypes = 2;  // types of tensors: gate and up, down
constexpr int64_t kNowhere = -1;

// A reserved range of addresses, divided into places of one size.
class AddressRange {
 public:
  AddressRange(const DriverApi& api, uint64_t place_bytes, int64_t places)
      : api_(api), place_bytes_(place_bytes), bytes_(place_bytes * static_cast<uint64_t>(places)) {
    if (bytes_ > 0) check(api_.address_reserve(&begin_, bytes_, 0, 0, 0), "reserving addresses for experts");
  }
  ~AddressRange() {
    if (begin_ != 0) api_.address_free(begin_, bytes_);
  }
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  uint64_t place_bytes() const { return place_bytes_; }
  CUdeviceptr address(int64_t place) const { return begin_ + static_cast<uint64_t>(place) * place_bytes_; }

 private:
  const DriverApi& api_;
  const uint64_t place_bytes_;
  const uint64_t bytes_;
  CUdeviceptr begin_ = 0;
};

class MappedSlots final : public SlotMemory {
 public:
  MappedSlots(DeviceArena& arena, int device, uint64_t granularity, const ExpertMemoryShape& shape)
      : api_(*driver_api()),
        arena_(arena),
        shape_(shape),
        ranges_{{{api_, mapped_bytes(shape.gate_up_bytes, granularity), shape.experts + shape.slots},
                 {api_, mapped_bytes(shape.down_bytes, granularity), shape.experts + shape.slots}}},
        slots_(static_cast<size_t>(shape.slots)),
        taken_(static_cast<size_t>(shape.experts), false) {
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties_.location.id = device;
    try {
      for (int slot = 0; slot < shape.slots; ++slot) create(slot);
    } catch (...) {
      release();
      throw;
    }
  }
  ~MappedSlots() override { release(); }
  MappedSlots(const MappedSlots&) = delete;
  MappedSlots& operator=(const MappedSlots&) = delete;

  ExpertPages claim(int slot, int64_t expert) override {
    Slot& claiming = at(slot);
    const bool known = expert >= 0 && expert < shape_.experts;
    {
      const std::lock_guard lock(mutex_);
      const bool free = known && (claiming.mapped_at == expert || !taken_[static_cast<size_t>(expert)]);
      // The places of experts come first, then the slots' own places.
      claiming.claimed = free ? expert : shape_.experts + slot;
      set_taken(claiming.claimed, true);
    }
    return {{pointer(0, claiming.claimed), shape_.gate_up_bytes}, {pointer(1, claiming.claimed), shape_.down_bytes}};
  }

  bool moves(int slot) const override {
    const Slot& moving = slots_[static_cast<size_t>(slot)];
    return moving.claimed != moving.mapped_at;
  }

  void move(int slot) override {
    Slot& moving = at(slot);
    if (moving.claimed != moving.mapped_at) leave(moving);
    map(moving, moving.claimed);
    moving.claimed = kNowhere;
  }

  void give_up_claim(int slot) override {
    Slot& claiming = at(slot);
    const std::lock_guard lock(mutex_);
    if (claiming.claimed != claiming.mapped_at) set_taken(claiming.claimed, false);
    claiming.claimed = kNowhere;
  }

  void let_go(int slot) override {
    Slot& gone = at(slot);
    const int64_t left = gone.mapped_at;
    release(gone);
    // As in leave(): only now may another slot be mapped there.
    const std::lock_guard lock(mutex_);
    if (gone.mapped_at == kNowhere) set_taken(left, false);
  }

  void take(int slot) override {
    if (at(slot).created[0] || at(slot).created[1]) return;
    try {
      create(slot);
    } catch (...) {
      give_up_claim(slot);
      let_go(slot);
      throw;
    }
  }

 private:
  struct Slot {
    std::array<CUmemGenericAllocationHandle, kTypes> memory = {};
    std::array<bool, kTypes> created = {};
    std::array<bool, kTypes> mapped = {};
    int64_t mapped_at = kNowhere;
    int64_t claimed = kNowhere;
  };

  Slot& at(int slot) { return slots_[static_cast<size_t>(slot)]; }
  void* pointer(size_t type, int64_t place) const { return reinterpret_cast<void*>(ranges_[type].address(place)); }

  // The caller holds the mutex. No other slot uses a slot's own place.
  void set_taken(int64_t place, bool taken) {
    if (place >= 0 && place < shape_.experts) taken_[static_cast<size_t>(place)] = taken;
  }

  void create(int slot) {
    Slot& made = at(slot);
    for (size_t type = 0; type < kTypes; ++type) {
      const uint64_t bytes = ranges_[type].place_bytes();
      if (bytes == 0) continue;
      arena_.reserve(bytes, "a slot for experts");
      try {
        CUresult created = api_.create(&made.memory[type], bytes, &properties_, 0);
        if (created == CUDA_ERROR_OUT_OF_MEMORY && arena_.give_up_spare()) {
          created = api_.create(&made.memory[type], bytes, &properties_, 0);
        }
        check(created, "taking device memory for experts");
      } catch (...) {
        arena_.give_back(bytes);
        throw;
      }
      made.created[type] = true;
    }
    claim(slot, kNoExpert);
    move(slot);
    for (size_t type = 0; type < kTypes; ++type) {
      if (made.created[type]) {
        check(cudaMemset(pointer(type, made.mapped_at), 0, ranges_[type].place_bytes()), "clearing memory for experts");
      }
    }
    // Non-blocking streams do not wait for the default stream.
    check(cudaDeviceSynchronize(), "clearing memory for experts");
  }

  // Maps those tensors of the slot that are not mapped yet.
  void map(Slot& slot, int64_t place) {
    CUmemAccessDesc access{};
    access.location = properties_.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    slot.mapped_at = place;
    try {
      for (size_t type = 0; type < kTypes; ++type) {
        if (!slot.created[type] || slot.mapped[type]) continue;
        const uint64_t bytes = ranges_[type].place_bytes();
        const CUdeviceptr address = ranges_[type].address(place);
        check(api_.map(address, bytes, 0, slot.memory[type], 0), "mapping an expert's memory");
        slot.mapped[type] = true;
        check(api_.set_access(address, bytes, &access, 1), "mapping an expert's memory");
      }
    } catch (...) {
      unmap(slot);
      throw;
    }
  }

  void leave(Slot& slot) {
    const int64_t left = slot.mapped_at;
    check(unmap(slot), "unmapping an expert's memory");
    // Only now may another slot be mapped there.
    const std::lock_guard lock(mutex_);
    set_taken(left, false);
  }

  // Afterwards the slot is not mapped anywhere. If the driver refuses, the slot stays where it was, and the first error is
  // returned.
  CUresult unmap(Slot& slot) noexcept {
    CUresult result = CUDA_SUCCESS;
    for (size_t type = 0; type < kTypes; ++type) {
      if (!slot.mapped[type]) continue;
      const CUresult unmapped = api_.unmap(ranges_[type].address(slot.mapped_at), ranges_[type].place_bytes());
      if (unmapped == CUDA_SUCCESS) slot.mapped[type] = false;
      if (result == CUDA_SUCCESS) result = unmapped;
    }
    if (result == CUDA_SUCCESS) slot.mapped_at = kNowhere;
    return result;
  }

  void release() noexcept {
    for (Slot& slot : slots_) release(slot);
  }

  void release(Slot& slot) noexcept {
    unmap(slot);
    for (size_t type = 0; type < kTypes; ++type) {
      if (!slot.created[type]) continue;
      api_.release(slot.memory[type]);
      slot.created[type] = false;
      arena_.give_back(ranges_[type].place_bytes());
    }
  }

  const DriverApi& api_;
  DeviceArena& arena_;
  const ExpertMemoryShape shape_;
  CUmemAllocationProp properties_{};
  std::array<AddressRange, kTypes> ranges_;
  std::vector<Slot> slots_;
  std::mutex mutex_;         // guards the list below
  std::vector<bool> taken_;  // by expert: a slot is mapped at its addresses, or has claimed them
};

}  // namespace

std::unique_ptr<SlotMemory> make_mapped_slots(DeviceArena& arena, int device, uint64_t granularity,
                                              const ExpertMemoryShape& shape) {
  return std::make_unique<MappedSlots>(arena, device, granularity, shape);
}

}  // namespace odmoe::cuda
