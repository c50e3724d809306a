// Streams that bring weights to the device beside the compute stream, each with its own scratch.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "device_arena.h"
#include "device_context.h"

namespace odmoe::cuda {

// The usual number of decompression threads of a loader; any further thread waits for a lane.
inline constexpr int kLoadLanes = 4;
// Room for a loader's piece: its raw planes, its coded blocks and their decoded bytes; a multiple of the device's blocks.
inline constexpr uint64_t kLaneScratchBytes = 4 << 20;

struct LoadLane {
  int index = 0;
  cudaStream_t stream = nullptr;
  cudaEvent_t reached = nullptr;  // the host waits for it, and its thread sleeps meanwhile
  DeviceBuffer scratch;           // its uses follow the stream's order
};

class LoadLanes {
 public:
  // Throws DEVICE_OUT_OF_MEMORY.
  LoadLanes(const DeviceContext& context, DeviceArena& arena);
  ~LoadLanes();
  LoadLanes(const LoadLanes&) = delete;
  LoadLanes& operator=(const LoadLanes&) = delete;

  // Holds a lane during its lifetime. If it ends without let_go() (after an error), it waits for the lane's work, which may still
  // read the caller's memory.
  class Use {
   public:
    explicit Use(LoadLanes& lanes) : lanes_(lanes), lane_(lanes.take()) {}
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    LoadLane& operator*() const { return lane_; }
    LoadLane* operator->() const { return &lane_; }
    // mark() marks the end of the lane's work so far; wait_for_mark() waits on the host until that work is done.
    void mark();
    void wait_for_mark();
    // Gets scratch of at least `bytes`; its old contents are lost. Throws DEVICE_OUT_OF_MEMORY.
    void need_scratch(uint64_t bytes);
    void let_go() { over_ = true; }

   private:
    LoadLanes& lanes_;
    LoadLane& lane_;
    bool over_ = false;
  };

 private:
  LoadLane& take();
  void put_back(LoadLane& lane) noexcept;
  void release() noexcept;

  DeviceArena& arena_;
  std::array<LoadLane, kLoadLanes> lanes_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::array<bool, kLoadLanes> taken_ = {};
};

}  // namespace odmoe::cuda
