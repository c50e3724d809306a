// The common first steps of every function of the runtime.
#pragma once

#include "device.h"

namespace odmoe_simulated {

using Lock = std::unique_lock<std::mutex>;

// The error for a stream that does not exist; for the default stream it ends the process with a message.
cudaError_t refuse_stream(const char* call, cudaStream_t stream);

template <typename Body>
cudaError_t call_without_context(Body&& body) {
  ++calls_made();
  Machine& machine = Machine::get();
  Lock lock(machine.mutex);
  const cudaError_t error = machine.usable();
  return remember(error != cudaSuccess ? error : body(machine, lock));
}

template <typename Body>
cudaError_t call(Body&& body) {
  return call_without_context([&](Machine& machine, Lock& lock) {
    return machine.open_context(current_device()) ? body(machine, lock) : cudaErrorMemoryAllocation;
  });
}

}  // namespace odmoe_simulated
