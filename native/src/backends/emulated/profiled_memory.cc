#include "profiled_memory.h"

#include <algorithm>
#include <string>

#include "odmoe/error.h"

namespace odmoe::emulated {
namespace {

const char* describe(Holding what) {
  static constexpr std::array<const char*, kHoldings> kNames = {"embedding, LM head and final norm",
                                                                "the dense weights of a layer",
                                                                "a resident expert",
                                                                "a slot for an expert",
                                                                "what slots share",
                                                                "keys and values of a layer"};
  return kNames[static_cast<size_t>(what)];
}

}  // namespace

ProfiledMemory::ProfiledMemory(const Emulation& emulation, uint64_t budget_bytes)
    : bytes_of_one_{emulation.outer_bytes, emulation.dense_layer_bytes,  emulation.expert_bytes,
                    emulation.slot_bytes,  emulation.slots_shared_bytes, emulation.key_value_row_bytes},
      budget_bytes_(budget_bytes) {}

void ProfiledMemory::hold(Holding what, int64_t count) {
  const uint64_t bytes = bytes_of(what) * static_cast<uint64_t>(count);
  const std::lock_guard lock(mutex_);
  if (budget_bytes_ != 0 && (bytes > budget_bytes_ || used_bytes_ > budget_bytes_ - bytes)) {
    throw Error("DEVICE_OUT_OF_MEMORY", "the emulated device cannot hold " + std::string(describe(what)) +
                                            ": the profiled model needs " + std::to_string(bytes) + " bytes for it, and " +
                                            std::to_string(used_bytes_) + " of the budget's " + std::to_string(budget_bytes_) +
                                            " are in use; give the profile's device more memory, or less to hold");
  }
  used_bytes_ += bytes;
  high_water_bytes_ = std::max(high_water_bytes_, used_bytes_);
}

void ProfiledMemory::let_go(Holding what, int64_t count) noexcept {
  const std::lock_guard lock(mutex_);
  used_bytes_ -= bytes_of(what) * static_cast<uint64_t>(count);
}

uint64_t ProfiledMemory::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

uint64_t ProfiledMemory::high_water_bytes() const {
  const std::lock_guard lock(mutex_);
  return high_water_bytes_;
}

}  // namespace odmoe::emulated
