#include "device.h"

#include "block_execution.h"
#include "faults.h"

#include <cfenv>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace odmoe_simulated {
namespace {

constexpr size_t kDeviceAlignment = 256;
constexpr size_t kFreedRanges = 1000;
constexpr std::chrono::microseconds kHostLead{300};

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

int& current_device() {
  thread_local int device = 0;
  return device;
}

unsigned long long& calls_made() {
  thread_local unsigned long long calls = 0;
  return calls;
}

Machine& Machine::get() {
  // Never destroyed: its thread runs until the process ends.
  static Machine* machine = new Machine();
  return *machine;
}

Machine::Machine() : random_(configuration().seed), seeds_(configuration().seed) {
  const size_t devices = static_cast<size_t>(configuration().devices);
  used_.resize(devices);
  contexts_.resize(devices);
  for (size_t i = 0; i < devices; ++i) default_streams_.push_back(new_stream(static_cast<int>(i), 0));
  std::thread([this] { execute(); }).detach();
  std::unique_lock<std::mutex> lock(mutex);
  changed_.wait(lock, [this] { return ready_; });
}

cudaError_t Machine::usable() const {
  if (configuration().driver_version < 11080) return cudaErrorInsufficientDriver;
  if (configuration().devices == 0) return cudaErrorNoDevice;
  return sticky_;
}

bool Machine::open_context(int device) {
  const size_t index = static_cast<size_t>(device);
  if (contexts_[index]) return true;
  if (!take(device, configuration().context_bytes)) return false;
  contexts_[index] = true;
  return true;
}

bool Machine::take(int device, size_t bytes) {
  size_t& used = used_[static_cast<size_t>(device)];
  if (bytes > configuration().memory_bytes - used) return false;
  used += bytes;
  return true;
}

void Machine::give_back(int device, size_t bytes) { used_[static_cast<size_t>(device)] -= bytes; }

bool Machine::next_allocation_fails() { return allocations_made_++ == configuration().out_of_memory_at; }

// The allocation ends at a guard page, so its start need not be at a page boundary.
static bool map_guarded(size_t size, size_t alignment, Allocation& to, char** pointer) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t rounded = round_up(size, alignment), body = round_up(rounded, page);
  void* region = mmap(nullptr, body + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) return false;
  to.region = static_cast<char*>(region);
  to.region_size = body + 2 * page;
  if (mprotect(to.region + page, body, PROT_READ | PROT_WRITE) != 0) {
    munmap(region, to.region_size);
    return false;
  }
  std::memset(to.region + page, 0xff, body);
  *pointer = to.region + page + body - rounded;
  to.size = size;
  return true;
}

cudaError_t Machine::allocate_device(void** pointer, size_t size, int device) {
  *pointer = nullptr;
  if (size == 0) return cudaSuccess;
  if (next_allocation_fails() || !take(device, round_up(size, kDeviceAlignment))) return cudaErrorMemoryAllocation;
  Allocation allocation;
  allocation.device = device;
  char* start = nullptr;
  if (!map_guarded(size, kDeviceAlignment, allocation, &start)) {
    give_back(device, round_up(size, kDeviceAlignment));
    return cudaErrorMemoryAllocation;
  }
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  protect_device_memory(allocation.region + page, allocation.region_size - 2 * page, PROT_READ | PROT_WRITE);
  allocations_[start] = allocation;
  *pointer = start;
  return cudaSuccess;
}

cudaError_t Machine::allocate_host(void** pointer, size_t size) {
  *pointer = nullptr;
  if (size == 0) return cudaSuccess;
  if (next_allocation_fails()) return cudaErrorMemoryAllocation;
  Allocation allocation;
  allocation.kind = Allocation::Kind::kHost;
  char* start = nullptr;
  // CUDA's host memory begins at a page.
  if (!map_guarded(size, static_cast<size_t>(sysconf(_SC_PAGESIZE)), allocation, &start)) return cudaErrorMemoryAllocation;
  allocations_[start] = allocation;
  *pointer = start;
  return cudaSuccess;
}

cudaError_t Machine::free_allocation(void* pointer, Allocation::Kind kind) {
  const auto found = allocations_.find(static_cast<const char*>(pointer));
  if (found == allocations_.end() || found->second.kind != kind) return cudaErrorInvalidValue;
  const Allocation allocation = found->second;
  allocations_.erase(found);
  if (kind == Allocation::Kind::kDevice) give_back(allocation.device, round_up(allocation.size, kDeviceAlignment));
  // These addresses are not reused soon: an access by a stale pointer faults.
  mmap(allocation.region, allocation.region_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  freed_.push_back(allocation);
  if (freed_.size() > kFreedRanges) {
    munmap(freed_.front().region, freed_.front().region_size);
    freed_.pop_front();
  }
  return cudaSuccess;
}

const Allocation* Machine::find(const void* pointer, size_t size, const char** base) const {
  const char* start = static_cast<const char*>(pointer);
  auto next = allocations_.upper_bound(start);
  if (next == allocations_.begin()) return nullptr;
  const auto found = std::prev(next);
  // Neighbours that were mapped side by side are one range of addresses.
  const char* end = found->first + found->second.size;
  while (end < start + size && found->second.kind == Allocation::Kind::kMapped && next != allocations_.end() &&
         next->first == end && next->second.kind == Allocation::Kind::kMapped) {
    end += next->second.size;
    ++next;
  }
  if (start >= found->first + found->second.size || start + size > end) return nullptr;
  if (base != nullptr) *base = found->first;
  return &found->second;
}

bool Machine::touches_allocation(const void* pointer, size_t size) const {
  const char* start = static_cast<const char*>(pointer);
  const auto next = allocations_.lower_bound(start + (size == 0 ? 1 : size));
  if (next == allocations_.begin()) return false;
  const auto found = std::prev(next);
  return found->first + found->second.size > start;
}

void Machine::add(void* pointer, size_t size, int device, Allocation::Kind kind) {
  Allocation allocation;
  allocation.kind = kind;
  allocation.device = device;
  allocation.size = size;
  allocations_[static_cast<const char*>(pointer)] = allocation;
}

bool Machine::remove(void* pointer, Allocation::Kind kind) {
  const auto found = allocations_.find(static_cast<const char*>(pointer));
  if (found == allocations_.end() || found->second.kind != kind) return false;
  allocations_.erase(found);
  return true;
}

bool Machine::may_be_argument(const void* pointer) const {
  const char* address = static_cast<const char*>(pointer);
  if (address == nullptr || touches_allocation(address, 1) || touches_allocation(address - 1, 1)) return true;
  const auto next = reserved.upper_bound(reinterpret_cast<uintptr_t>(pointer));
  if (next == reserved.begin()) return false;
  const auto& [start, size] = *std::prev(next);
  return reinterpret_cast<uintptr_t>(pointer) <= start + size;
}

std::shared_ptr<Stream> Machine::new_stream(int device, int priority) {
  auto stream = std::make_shared<Stream>();
  stream->device = device;
  stream->priority = priority;
  queues_.push_back(stream);
  return stream;
}

void Machine::enqueue(Stream& stream, Operation operation) {
  operation.issue = issued_++;
  stream.queue.push_back(std::move(operation));
  work_.notify_one();
}

void Machine::wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done) {
  ++waiting_;
  work_.notify_one();
  changed_.wait(lock, [&] { return sticky_ != cudaSuccess || done(); });
  --waiting_;
}

bool Machine::idle(int device) const {
  for (const auto& stream : queues_) {
    if (stream->device == device && !stream->queue.empty()) return false;
  }
  return true;
}

void Machine::wait_idle(std::unique_lock<std::mutex>& lock, int device) {
  wait(lock, [&] { return idle(device); });
}

// One of the streams whose head can run; null where there is none.
Stream* Machine::choose() {
  std::vector<Stream*> ready;
  for (size_t i = 0; i < queues_.size();) {
    Stream& stream = *queues_[i];
    if (stream.queue.empty()) {
      if (queues_[i].use_count() == 1) {  // destroyed and drained
        queues_[i] = queues_.back();
        queues_.pop_back();
        continue;
      }
    } else {
      const Operation& head = stream.queue.front();
      if (head.wait_for == nullptr || head.wait_for->completed >= head.version) ready.push_back(&stream);
    }
    ++i;
  }
  if (ready.empty()) return nullptr;
  if (configuration().seed != 0) return ready[random_() % ready.size()];
  Stream* first = ready[0];
  for (Stream* stream : ready) {
    if (stream->queue.front().issue < first->queue.front().issue) first = stream;
  }
  return first;
}

// Sometimes the device lets the host run ahead, unless a thread waits for it. So a buffer that is reused too early shows here, and
// streams have work that can be reordered.
void Machine::hold_back(std::unique_lock<std::mutex>& lock) {
  if (configuration().seed == 0 || waiting_ > 0 || (random_() & 1) == 0) return;
  work_.wait_for(lock, kHostLead, [&] { return waiting_ > 0; });
}

void Machine::execute() {
  pthread_setname_np(pthread_self(), "simulated-cuda");
  sigset_t others;  // the program's signals are not for the small stacks of fibers
  sigfillset(&others);
  for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGABRT}) sigdelset(&others, fault);
  pthread_sigmask(SIG_SETMASK, &others, nullptr);
  open_device_memory();
  report_faults_of_this_thread();
  std::fesetenv(FE_DFL_ENV);
  std::unique_lock<std::mutex> lock(mutex);
  ready_ = true;
  changed_.notify_all();
  for (;;) {
    work_.wait(lock, [&] { return sticky_ == cudaSuccess && choose() != nullptr; });
    hold_back(lock);
    Stream* stream = choose();
    Operation& head = stream->queue.front();
    if (head.kernel && kernels_run_++ == configuration().lost_after) {
      lose(configuration().lost_error);
      continue;
    }
    if (head.run != nullptr) {
      lock.unlock();
      head.run();
      lock.lock();
    }
    if (head.record != nullptr) {
      head.record->time = std::chrono::steady_clock::now();
      head.record->completed = head.version;
    }
    const Operation done = std::move(head);  // freed without the lock
    stream->queue.pop_front();
    changed_.notify_all();
  }
}

}  // namespace odmoe_simulated
