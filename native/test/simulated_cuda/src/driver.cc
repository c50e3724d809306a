// The driver's functions that map device memory, on files in memory: an address that is not mapped faults.
#include "cuda.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "faults.h"
#include "runtime_call.h"
#include "simulated_cuda.h"

using namespace odmoe_simulated;

namespace {

constexpr size_t kGranularity = 2 << 20;

struct Memory {
  int file = -1;
  int device = 0;
  size_t size = 0;
  int mappings = 0;
  bool released = false;
};
struct Mapping {
  size_t size = 0;
  CUmemGenericAllocationHandle handle = 0;
};
struct Driver {
  bool initialized = false;
  CUmemGenericAllocationHandle next_handle = 1;
  std::map<CUmemGenericAllocationHandle, Memory> memories;
  std::map<CUdeviceptr, Mapping> mappings;
};

Driver& driver() {
  static Driver* driver = new Driver();
  return *driver;
}

CUresult as_driver_error(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver: return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    default: return static_cast<CUresult>(error);
  }
}

template <typename Body>
CUresult call_driver(Body&& body) {
  ++calls_made();
  Machine& machine = Machine::get();
  Lock lock(machine.mutex);
  if (const cudaError_t error = machine.usable(); error != cudaSuccess) return as_driver_error(error);
  if (!driver().initialized && !machine.has_context()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!configuration().vmm) return CUDA_ERROR_NOT_SUPPORTED;
  return body(machine, driver());
}

bool whole(unsigned long long value) { return value % kGranularity == 0; }
void* as_pointer(CUdeviceptr address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); }

bool known_location(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id >= 0 && location.id < configuration().devices;
}

bool reserved(const Machine& machine, CUdeviceptr address, size_t size) {
  auto next = machine.reserved.upper_bound(address);
  if (next == machine.reserved.begin()) return false;
  const auto range = std::prev(next);
  return address >= range->first && address + size <= range->first + range->second;
}

void drop_if_unused(Machine& machine, Driver& all, CUmemGenericAllocationHandle handle) {
  const auto found = all.memories.find(handle);
  if (found == all.memories.end() || !found->second.released || found->second.mappings != 0) return;
  machine.give_back(found->second.device, found->second.size);
  close(found->second.file);
  all.memories.erase(found);
}

// Visits the mappings that together are exactly [address, address + size); false if they do not cover it.
template <typename Visit>
bool each_mapping(Driver& all, CUdeviceptr address, size_t size, Visit&& visit) {
  const CUdeviceptr end = address + size;
  CUdeviceptr at = address;
  for (auto i = all.mappings.find(address); i != all.mappings.end() && i->first == at && at < end; ++i) at += i->second.size;
  if (at != end || size == 0) return false;
  for (auto i = all.mappings.find(address); i != all.mappings.end() && i->first < end;) visit(i++);
  return true;
}

}  // namespace

extern "C" {

#define ODMOE_CASE(name, value, words) \
  case name: *text = words; return CUDA_SUCCESS;
CUresult cuGetErrorString(CUresult error, const char** text) {
  switch (error) { ODMOE_SIMULATED_DRIVER_ERRORS(ODMOE_CASE) }
  *text = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}
#undef ODMOE_CASE
#define ODMOE_CASE(name, value, words) \
  case name: *text = #name; return CUDA_SUCCESS;
CUresult cuGetErrorName(CUresult error, const char** text) {
  switch (error) { ODMOE_SIMULATED_DRIVER_ERRORS(ODMOE_CASE) }
  *text = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}
#undef ODMOE_CASE

CUresult cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (configuration().devices == 0) return CUDA_ERROR_NO_DEVICE;
  Machine& machine = Machine::get();
  const Lock lock(machine.mutex);
  driver().initialized = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  *version = configuration().driver_version;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = configuration().devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (ordinal < 0 || ordinal >= configuration().devices) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (device < 0 || device >= configuration().devices) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 4; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED: *value = configuration().integrated ? 1 : 0; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = configuration().major; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = configuration().minor; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: *value = configuration().vmm ? 1 : 0; return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  return call_driver([&](Machine&, Driver&) {
    const bool complete = granularity != nullptr && properties != nullptr;
    if (!complete || !known_location(properties->location)) return CUDA_ERROR_INVALID_VALUE;
    *granularity = kGranularity;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr, unsigned long long flags) {
  return call_driver([&](Machine& machine, Driver&) {
    if (address == nullptr || size == 0 || !whole(size) || flags != 0 || (alignment & (alignment - 1)) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const size_t unit = alignment > kGranularity ? alignment : kGranularity;
    void* memory = mmap(nullptr, size + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    const uintptr_t start = reinterpret_cast<uintptr_t>(memory), aligned = (start + unit - 1) / unit * unit;
    if (aligned != start) munmap(memory, aligned - start);
    if (start + unit != aligned) munmap(as_pointer(aligned + size), start + unit - aligned);
    *address = aligned;
    machine.reserved[aligned] = size;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  return call_driver([&](Machine& machine, Driver& all) {
    const auto found = machine.reserved.find(address);
    if (found == machine.reserved.end() || found->second != size) return CUDA_ERROR_INVALID_VALUE;
    const auto mapping = all.mappings.lower_bound(address);
    if (mapping != all.mappings.end() && mapping->first < address + size) return CUDA_ERROR_INVALID_VALUE;
    munmap(as_pointer(address), size);
    machine.reserved.erase(found);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  return call_driver([&](Machine& machine, Driver& all) {
    if (handle == nullptr || properties == nullptr || size == 0 || !whole(size) || flags != 0 ||
        properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (!known_location(properties->location)) return CUDA_ERROR_INVALID_DEVICE;
    const int device = properties->location.id;
    if (machine.next_allocation_fails() || !machine.take(device, size)) return CUDA_ERROR_OUT_OF_MEMORY;
    Memory memory;
    memory.device = device;
    memory.size = size;
    memory.file = memfd_create("simulated-cuda", MFD_CLOEXEC);
    void* whole_memory = MAP_FAILED;
    if (memory.file >= 0 && ftruncate(memory.file, static_cast<off_t>(size)) == 0) {
      whole_memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.file, 0);
    }
    if (whole_memory == MAP_FAILED) {
      if (memory.file >= 0) close(memory.file);
      machine.give_back(device, size);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    std::memset(whole_memory, 0xff, size);
    munmap(whole_memory, size);
    *handle = all.next_handle++;
    all.memories[*handle] = memory;
    return CUDA_SUCCESS;
  });
}

// The memory itself stays until its last mapping is gone.
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return call_driver([&](Machine& machine, Driver& all) {
    const auto found = all.memories.find(handle);
    if (found == all.memories.end() || found->second.released) return CUDA_ERROR_INVALID_VALUE;
    found->second.released = true;
    drop_if_unused(machine, all, handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return call_driver([&](Machine& machine, Driver& all) {
    const auto memory = all.memories.find(handle);
    if (memory == all.memories.end() || memory->second.released) return CUDA_ERROR_INVALID_VALUE;
    if (!whole(size) || !whole(address) || size == 0 || offset != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (size > memory->second.size || !reserved(machine, address, size)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (machine.next_mapping_fails()) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto after = all.mappings.lower_bound(address + size);
    if (after != all.mappings.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second.size > address) return CUDA_ERROR_INVALID_VALUE;
    }
    // No access until cuMemSetAccess.
    void* mapped = mmap(as_pointer(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->second.file, 0);
    if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    all.mappings[address] = Mapping{size, handle};
    ++memory->second.mappings;
    machine.add(mapped, size, memory->second.device, Allocation::Kind::kMapped);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  // The real function takes a while.
  std::this_thread::yield();
  return call_driver([&](Machine& machine, Driver& all) {
    const bool covered = each_mapping(all, address, size, [&](std::map<CUdeviceptr, Mapping>::iterator mapping) {
      constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
      mmap(as_pointer(mapping->first), mapping->second.size, PROT_NONE, kFlags, -1, 0);
      machine.remove(as_pointer(mapping->first), Allocation::Kind::kMapped);
      const CUmemGenericAllocationHandle handle = mapping->second.handle;
      --all.memories[handle].mappings;
      all.mappings.erase(mapping);
      drop_if_unused(machine, all, handle);
    });
    return covered ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* descriptions, size_t count) {
  return call_driver([&](Machine& machine, Driver& all) {
    if (descriptions == nullptr || count == 0 || !whole(address) || !whole(size)) return CUDA_ERROR_INVALID_VALUE;
    if (machine.next_mapping_fails()) return CUDA_ERROR_OUT_OF_MEMORY;
    int protection = PROT_NONE;
    for (size_t i = 0; i < count; ++i) {
      if (!known_location(descriptions[i].location)) return CUDA_ERROR_INVALID_DEVICE;
      if (descriptions[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) protection |= PROT_READ;
      if (descriptions[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) protection |= PROT_WRITE;
    }
    const bool covered = each_mapping(all, address, size, [&](std::map<CUdeviceptr, Mapping>::iterator mapping) {
      protect_device_memory(as_pointer(mapping->first), mapping->second.size, protection);
    });
    return covered ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

unsigned long long odmoe_simulated_cuda_calls(void) { return calls_made(); }

void odmoe_simulated_cuda_fail_mapping(long long calls) {
  Machine& machine = Machine::get();
  const Lock lock(machine.mutex);
  machine.mappings_until_failure = calls;
}

}  // extern "C"
