// Streams that weights come to the device on, beside the compute stream, each with scratch of its own.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "device_arena.h"
#include "device_context.h"

namespace odmoe::cuda {

// As many as loaders have decompression threads on the machines this is for; a thread more waits for a lane.
inline constexpr int kLoadLanes = 4;
// Holds a loader's piece: its raw planes, its coded blocks and what they decode to; whole blocks of the device.
inline constexpr uint64_t kLaneScratchBytes = 4 << 20;

struct LoadLane {
  int index = 0;
  cudaStream_t stream = nullptr;
  cudaEvent_t reached = nullptr;  // for the host to wait for; lets its thread sleep
  DeviceBuffer scratch;           // what is done with it follows the stream's order
};

class LoadLanes {
 public:
  // Throws DEVICE_OUT_OF_MEMORY.
  LoadLanes(const DeviceContext& context, DeviceArena& arena);
  ~LoadLanes();
  LoadLanes(const LoadLanes&) = delete;
  LoadLanes& operator=(const LoadLanes&) = delete;

  // A lane for as long as this lives. Where it ends without having been let go (an error), it waits for what is under way, as that may
  // still read the caller's memory.
  class Use {
   public:
    explicit Use(LoadLanes& lanes) : lanes_(lanes), lane_(lanes.take()) {}
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    LoadLane& operator*() const { return lane_; }
    LoadLane* operator->() const { return &lane_; }
    // The host waits for all that has been asked of the lane up to the mark.
    void mark();
    void wait_for_mark();
    // Scratch of at least so many bytes; what it held is gone. Throws DEVICE_OUT_OF_MEMORY.
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
