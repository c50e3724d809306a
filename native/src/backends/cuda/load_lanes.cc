#include "load_lanes.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "cuda_error.h"
#include "odmoe/error.h"

namespace odmoe::cuda {
namespace {

// A lane is busy only for milliseconds; if the device is lost, all waits end with an error.
constexpr std::chrono::seconds kLongestWait{120};

}  // namespace

LoadLanes::LoadLanes(const DeviceContext& context, DeviceArena& arena) : arena_(arena) {
  try {
    for (int i = 0; i < kLoadLanes; ++i) {
      LoadLane& lane = lanes_[static_cast<size_t>(i)];
      lane.index = i;
      check(cudaStreamCreateWithPriority(&lane.stream, cudaStreamNonBlocking, context.lowest_priority()), "creating a stream");
      check(cudaEventCreateWithFlags(&lane.reached, cudaEventDisableTiming | cudaEventBlockingSync), "creating an event");
      lane.scratch = arena_.allocate(kLaneScratchBytes);
    }
  } catch (...) {
    release();
    throw;
  }
}

LoadLanes::~LoadLanes() { release(); }

void LoadLanes::release() noexcept {
  for (LoadLane& lane : lanes_) {
    if (lane.stream != nullptr) {
      cudaStreamSynchronize(lane.stream);
      cudaStreamDestroy(lane.stream);
    }
    if (lane.reached != nullptr) cudaEventDestroy(lane.reached);
    arena_.release(lane.scratch);
  }
}

LoadLane& LoadLanes::take() {
  std::unique_lock lock(mutex_);
  const auto free = [this] { return std::find(taken_.begin(), taken_.end(), false); };
  if (!freed_.wait_for(lock, kLongestWait, [&] { return free() != taken_.end(); })) {
    throw Error(ErrorCode::device_lost, "no copy to the device has ended in " + std::to_string(kLongestWait.count()) +
                                            " s; start this daemon again, and look at the system's log (dmesg, Xid)");
  }
  const auto found = free();
  *found = true;
  return lanes_[static_cast<size_t>(found - taken_.begin())];
}

void LoadLanes::put_back(LoadLane& lane) noexcept {
  {
    const std::lock_guard lock(mutex_);
    taken_[static_cast<size_t>(lane.index)] = false;
  }
  freed_.notify_one();
}

LoadLanes::Use::~Use() {
  if (!over_) cudaStreamSynchronize(lane_.stream);
  lanes_.put_back(lane_);
}

void LoadLanes::Use::mark() { check(cudaEventRecord(lane_.reached, lane_.stream), "recording an event"); }

void LoadLanes::Use::wait_for_mark() {
  check(cudaEventSynchronize(lane_.reached), "waiting for weights on their way to the device");
}

void LoadLanes::Use::need_scratch(uint64_t bytes) {
  if (lane_.scratch.bytes >= bytes) return;
  mark();
  wait_for_mark();
  lanes_.arena_.release(lane_.scratch);
  try {
    lane_.scratch = lanes_.arena_.allocate(bytes);
  } catch (...) {
    lane_.scratch = lanes_.arena_.allocate(kLaneScratchBytes);
    throw;
  }
}

}  // namespace odmoe::cuda
