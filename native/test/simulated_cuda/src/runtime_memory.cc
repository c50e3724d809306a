// The runtime's functions about memory.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "runtime_call.h"

using namespace odmoe_simulated;

namespace {

using Kind = Allocation::Kind;
constexpr size_t kStagedBytes = 64 << 10;  // bytes that a copy from pageable memory copies during the call
constexpr size_t kGreatestPitch = 2147483647;

bool on_device(const Allocation* allocation) {
  return allocation != nullptr && (allocation->kind == Kind::kDevice || allocation->kind == Kind::kMapped);
}

// Finds a range's allocation; an error if the range leaves it, or if its memory does not match the copy's kind.
cudaError_t place(const Machine& machine, const void* pointer, size_t size, bool device_wanted, const Allocation** to) {
  *to = machine.find(pointer, size);
  if (*to == nullptr && machine.touches_allocation(pointer, size)) return cudaErrorInvalidValue;
  return device_wanted && *to == nullptr ? cudaErrorInvalidValue : cudaSuccess;
}

Stream* stream_of(Machine& machine, cudaStream_t stream) {
  const auto found = machine.streams.find(stream);
  return found == machine.streams.end() ? nullptr : found->second.get();
}

cudaError_t run_and_wait(Machine& machine, Lock& lock, Stream& stream, std::function<void()> work) {
  auto done = std::make_shared<bool>(false);
  Operation operation;
  operation.run = [work = std::move(work), &machine, done] {
    work();
    const Lock inner(machine.mutex);
    *done = true;
  };
  machine.enqueue(stream, std::move(operation));
  machine.wait(lock, [&] { return *done; });
  return *done ? cudaSuccess : machine.usable();
}

// Distant rows of `width` bytes; one row is a usual copy.
struct Rows {
  void* to;
  size_t to_pitch;
  const void* from;
  size_t from_pitch;
  size_t width;
  size_t height;

  size_t target_size() const { return (height - 1) * to_pitch + width; }
  size_t source_size() const { return (height - 1) * from_pitch + width; }
};

void copy_rows(const Rows& rows) {
  for (size_t row = 0; row < rows.height; ++row) {
    std::memcpy(static_cast<char*>(rows.to) + row * rows.to_pitch, static_cast<const char*>(rows.from) + row * rows.from_pitch,
                rows.width);
  }
}

cudaError_t copy(Machine& machine, Lock& lock, Stream& stream, bool async, const Rows& rows, cudaMemcpyKind kind) {
  if (rows.width == 0 || rows.height == 0) return cudaSuccess;
  if (rows.to == nullptr || rows.from == nullptr) return cudaErrorInvalidValue;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  const Allocation *target = nullptr, *source = nullptr;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  // Checks the range from the first row to the last, so that all rows are within one allocation.
  cudaError_t error = place(machine, rows.to, rows.target_size(), to_device, &target);
  if (error == cudaSuccess) error = place(machine, rows.from, rows.source_size(), from_device, &source);
  if (error != cudaSuccess) return error;
  // An error: the kind says host memory, but the pointer is to device memory.
  if (kind != cudaMemcpyDefault && ((!to_device && on_device(target)) || (!from_device && on_device(source)))) {
    return cudaErrorInvalidValue;
  }
  Operation operation;
  operation.run = [=] { copy_rows(rows); };
  const bool device_target = on_device(target);
  if (source == nullptr && device_target && rows.width * rows.height <= kStagedBytes) {
    auto staged = std::make_shared<std::vector<char>>(rows.width * rows.height);
    copy_rows({staged->data(), rows.width, rows.from, rows.from_pitch, rows.width, rows.height});
    operation.run = [=] { copy_rows({rows.to, rows.to_pitch, staged->data(), rows.width, rows.width, rows.height}); };
    machine.enqueue(stream, std::move(operation));
    return cudaSuccess;
  }
  const bool pageable = source == nullptr || target == nullptr;
  const bool within_device = device_target && on_device(source);
  if (pageable || (!async && !within_device)) return run_and_wait(machine, lock, stream, std::move(operation.run));
  machine.enqueue(stream, std::move(operation));
  return cudaSuccess;
}

cudaError_t set(Machine& machine, Stream& stream, void* to, int value, size_t size) {
  if (size == 0) return cudaSuccess;
  if (machine.find(to, size) == nullptr) return cudaErrorInvalidValue;
  Operation operation;
  operation.run = [=] { std::memset(to, value, size); };
  machine.enqueue(stream, std::move(operation));
  return cudaSuccess;
}

// Calls that free memory may wait for the device, but NVIDIA promises that for none of them.
cudaError_t give_back(void* pointer, Kind kind) {
  return call([&](Machine& machine, Lock& lock) {
    if (pointer == nullptr) return cudaSuccess;
    if (machine.next_free_waits()) machine.wait_idle(lock, current_device());
    if (machine.usable() != cudaSuccess) return machine.usable();
    return machine.free_allocation(pointer, kind);
  });
}

}  // namespace

extern "C" {

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return call([&](Machine& machine, Lock&) {
    *total_bytes = configuration().memory_bytes;
    *free_bytes = *total_bytes - machine.used(current_device());
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** pointer, size_t size) {
  return call([&](Machine& machine, Lock&) { return machine.allocate_device(pointer, size, current_device()); });
}

cudaError_t cudaFree(void* pointer) { return give_back(pointer, Kind::kDevice); }

cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned int) {
  return call([&](Machine& machine, Lock&) { return machine.allocate_host(pointer, size); });
}

cudaError_t cudaFreeHost(void* pointer) { return give_back(pointer, Kind::kHost); }

cudaError_t cudaHostRegister(void* pointer, size_t size, unsigned int) {
  return call([&](Machine& machine, Lock&) {
    if (pointer == nullptr || size == 0) return cudaErrorInvalidValue;
    if (machine.touches_allocation(pointer, size)) return cudaErrorHostMemoryAlreadyRegistered;
    machine.add(pointer, size, current_device(), Kind::kRegistered);
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* pointer) {
  return call([&](Machine& machine, Lock& lock) {
    machine.wait_idle(lock, current_device());
    if (machine.usable() != cudaSuccess) return machine.usable();
    return machine.remove(pointer, Kind::kRegistered) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
  });
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int) {
  return call([&](Machine& machine, Lock&) {
    const Allocation* allocation = machine.find(host, 1);
    if (allocation == nullptr || on_device(allocation)) return cudaErrorInvalidValue;
    *device = host;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return call([&](Machine& machine, Lock&) {
    *attributes = cudaPointerAttributes{};
    const Allocation* allocation = machine.find(pointer, 1);
    void* address = const_cast<void*>(pointer);
    if (allocation == nullptr) {
      attributes->device = -2;
      attributes->hostPointer = address;
      return cudaSuccess;
    }
    attributes->device = allocation->device;
    attributes->devicePointer = address;
    attributes->type = on_device(allocation) ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    if (!on_device(allocation)) attributes->hostPointer = address;
    return cudaSuccess;
  });
}

// In CUDA this returns before the bytes are set: other streams do not wait for it either.
cudaError_t cudaMemset(void* to, int value, size_t size) {
  return call([&](Machine& machine, Lock&) { return set(machine, machine.default_stream(current_device()), to, value, size); });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
  return call([&](Machine& machine, Lock&) {
    Stream* queue = stream_of(machine, stream);
    return queue == nullptr ? refuse_stream("cudaMemsetAsync", stream) : set(machine, *queue, to, value, size);
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  return call([&](Machine& machine, Lock& lock) {
    return copy(machine, lock, machine.default_stream(current_device()), false, {to, size, from, size, size, 1}, kind);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&](Machine& machine, Lock& lock) {
    Stream* queue = stream_of(machine, stream);
    if (queue == nullptr) return refuse_stream("cudaMemcpyAsync", stream);
    return copy(machine, lock, *queue, true, {to, size, from, size, size, 1}, kind);
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&](Machine& machine, Lock& lock) {
    Stream* queue = stream_of(machine, stream);
    if (queue == nullptr) return refuse_stream("cudaMemcpy2DAsync", stream);
    if (width > to_pitch || width > from_pitch || to_pitch > kGreatestPitch || from_pitch > kGreatestPitch) {
      return cudaErrorInvalidPitchValue;
    }
    return copy(machine, lock, *queue, true, {to, to_pitch, from, from_pitch, width, height}, kind);
  });
}

}  // extern "C"
