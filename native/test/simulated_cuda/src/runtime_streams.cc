// The runtime's functions about streams, events and launches.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "block_execution.h"
#include "runtime_call.h"

using namespace odmoe_simulated;

namespace odmoe_simulated {

cudaError_t refuse_stream(const char* call, cudaStream_t stream) {
  if (reinterpret_cast<uintptr_t>(stream) > 2) return cudaErrorInvalidResourceHandle;
  std::fprintf(stderr, "simulated CUDA: %s on the default stream: every operation must name a stream of its own\n", call);
  std::abort();
}

static bool can_run(dim3 grid, dim3 block) {
  const size_t threads = size_t{block.x} * block.y * block.z;
  const bool some = threads != 0 && grid.x != 0 && grid.y != 0 && grid.z != 0;
  return some && threads <= 1024 && block.z <= 64 && grid.x <= 2147483647u && grid.y <= 65535 && grid.z <= 65535;
}

// A real device faults where it touches the host's memory; here it could be touched.
static void check_arguments(const Machine& machine, const KernelCall& kernel) {
  int position = 0;
  for (const void* pointer : kernel.pointers()) {
    ++position;
    if (machine.may_be_argument(pointer)) continue;
    char name[512];
    describe_code(kernel.function(), name, sizeof name);
    std::fprintf(stderr, "simulated CUDA: kernel %s: pointer argument number %d, %p, is no device memory\n", name, position,
                 pointer);
    std::abort();
  }
}

cudaError_t launch(const cudaLaunchConfig_t* configuration_of_launch, KernelCall* kernel) {
  std::shared_ptr<KernelCall> owned(kernel);
  return call([&](Machine& machine, Lock&) {
    const cudaLaunchConfig_t& asked = *configuration_of_launch;
    const dim3 grid = asked.gridDim, block = asked.blockDim;
    const auto stream = machine.streams.find(asked.stream);
    if (stream == machine.streams.end()) return refuse_stream("cudaLaunchKernelEx", asked.stream);
    if (!can_run(grid, block)) return cudaErrorInvalidConfiguration;
    if (asked.dynamicSmemBytes != 0 || asked.numAttrs != 0) {
      std::fprintf(stderr, "simulated CUDA: dynamic shared memory and launch attributes are not simulated\n");
      std::abort();
    }
    if (configuration().no_image) return cudaErrorNoKernelImageForDevice;
    check_arguments(machine, *owned);
    Operation operation;
    operation.kernel = true;
    const uint64_t seed = machine.next_seed();
    operation.run = [owned, grid, block, seed] { run_kernel(*owned, grid, block, seed); };
    machine.enqueue(*stream->second, std::move(operation));
    return cudaSuccess;
  });
}

}  // namespace odmoe_simulated

extern "C" {

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call([&](Machine&, Lock&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return call([&](Machine& machine, Lock&) {
    if (flags != cudaStreamNonBlocking) {
      std::fprintf(stderr, "simulated CUDA: a stream that waits for the default stream: use cudaStreamNonBlocking\n");
      std::abort();
    }
    *stream = reinterpret_cast<cudaStream_t>(machine.next_handle++);
    machine.streams[*stream] = machine.new_stream(current_device(), priority);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call(
      [&](Machine& machine, Lock&) { return machine.streams.erase(stream) == 0 ? cudaErrorInvalidResourceHandle : cudaSuccess; });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call([&](Machine& machine, Lock& lock) {
    const auto found = machine.streams.find(stream);
    if (found == machine.streams.end()) return refuse_stream("cudaStreamSynchronize", stream);
    const std::shared_ptr<Stream> queue = found->second;
    // This does not wait for work that another thread adds meanwhile.
    const uint64_t last = queue->queue.empty() ? 0 : queue->queue.back().issue;
    machine.wait(lock, [&] { return queue->queue.empty() || queue->queue.front().issue > last; });
    return machine.usable();
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call([&](Machine& machine, Lock&) {
    const auto found = machine.streams.find(stream);
    if (found == machine.streams.end()) return refuse_stream("cudaStreamQuery", stream);
    return found->second->queue.empty() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  return call([&](Machine& machine, Lock&) {
    const auto queue = machine.streams.find(stream);
    const auto found = machine.events.find(event);
    if (found == machine.events.end()) return cudaErrorInvalidResourceHandle;
    if (queue == machine.streams.end()) return refuse_stream("cudaStreamWaitEvent", stream);
    Operation operation;
    operation.wait_for = found->second;
    operation.version = found->second->recorded;
    machine.enqueue(*queue->second, std::move(operation));
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return call([&](Machine& machine, Lock&) {
    auto made = std::make_shared<Event>();
    made->flags = flags;
    made->device = current_device();
    *event = reinterpret_cast<cudaEvent_t>(machine.next_handle++);
    machine.events[*event] = made;
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&](Machine& machine, Lock&) {
    const auto queue = machine.streams.find(stream);
    const auto found = machine.events.find(event);
    if (found == machine.events.end()) return cudaErrorInvalidResourceHandle;
    if (queue == machine.streams.end()) return refuse_stream("cudaEventRecord", stream);
    if (queue->second->device != found->second->device) return cudaErrorInvalidResourceHandle;
    Operation operation;
    operation.record = found->second;
    operation.version = ++found->second->recorded;
    machine.enqueue(*queue->second, std::move(operation));
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&](Machine& machine, Lock& lock) {
    const auto found = machine.events.find(event);
    if (found == machine.events.end()) return cudaErrorInvalidResourceHandle;
    const std::shared_ptr<Event> held = found->second;
    const uint64_t version = held->recorded;
    machine.wait(lock, [&] { return held->completed >= version; });
    return machine.usable();
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call([&](Machine& machine, Lock&) {
    const auto found = machine.events.find(event);
    if (found == machine.events.end()) return cudaErrorInvalidResourceHandle;
    return found->second->completed >= found->second->recorded ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return call([&](Machine& machine, Lock&) {
    const auto from = machine.events.find(start), to = machine.events.find(end);
    if (from == machine.events.end() || to == machine.events.end()) return cudaErrorInvalidResourceHandle;
    for (const auto& event : {from->second, to->second}) {
      if ((event->flags & cudaEventDisableTiming) != 0 || event->recorded == 0) return cudaErrorInvalidResourceHandle;
      if (event->completed < event->recorded) return cudaErrorNotReady;
    }
    *milliseconds = std::chrono::duration<float, std::milli>(to->second->time - from->second->time).count();
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call(
      [&](Machine& machine, Lock&) { return machine.events.erase(event) == 0 ? cudaErrorInvalidResourceHandle : cudaSuccess; });
}

}  // extern "C"
