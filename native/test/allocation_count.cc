#include "allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> is_counting = false;
std::atomic<int> allocations = 0;

}  // namespace

void* operator new(std::size_t bytes) {
  if (is_counting.load(std::memory_order_relaxed)) allocations++;
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

// The standard library allocates temporary buffers in this form; all forms must match the two below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  if (is_counting.load(std::memory_order_relaxed)) allocations++;
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace odmoe::test {

AllocationCount::AllocationCount() {
  allocations = 0;
  is_counting = true;
}

AllocationCount::~AllocationCount() { is_counting = false; }

int AllocationCount::count() const { return allocations; }

}  // namespace odmoe::test
