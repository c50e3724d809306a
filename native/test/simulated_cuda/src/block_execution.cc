#include "block_execution.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "fiber_switch.h"
#include "shared_memory.h"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace odmoe_simulated {
namespace {

constexpr unsigned kLanes = 32;
constexpr size_t kStackBytes = 256 << 10;
// The stacks' tops have different places in a page; otherwise they would evict one another from the processor's cache.
constexpr size_t kStackShift = 320, kStackShifts = 24;

struct Thread {
  FiberPlace place;
  void* stack = nullptr;
  uint3 index{};
  const char* waits_for = nullptr;  // the operation it waits at
  unsigned waits_with = 0;          // the mask it named there
};

// Lanes on their way to one warp operation.
struct Meeting {
  unsigned mask = 0;
  unsigned arrived = 0;
  const char* operation = nullptr;
  FinishWarp finish = nullptr;
  void* arguments[kLanes];
};

struct Warp {
  unsigned runnable = 0;
  unsigned exited = 0;
  std::vector<Meeting> meetings;
};

struct Block {
  const KernelCall* call = nullptr;
  FiberPlace scheduler;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<unsigned> warp_order;     // position -> warp
  std::vector<unsigned> order_of_warp;  // warp -> position
  unsigned thread_count = 0;
  unsigned current = 0;
  unsigned first_lane = 0;
  unsigned arrived = 0;  // at __syncthreads
  const char* barrier = nullptr;
  int predicates = 0;
  int predicate_result = 0;
};

Block block;

[[noreturn]] void refuse(const char* what) {
  char running[600];
  describe_running(running, sizeof running);
  std::fprintf(stderr, "simulated CUDA: %s: %s\n", what, running);
  std::fflush(stderr);
  std::abort();
}

void wake(unsigned thread) {
  block.current = thread;
  threadIdx = block.threads[thread].index;
}

// The thread that runs next: a lane of the same warp, else a lane of another warp, else none (-1).
int next_thread() {
  const unsigned warp = block.current / kLanes, lane = block.current % kLanes;
  if (const unsigned runnable = block.warps[warp].runnable) {
    const unsigned after = runnable & ~((2u << lane) - 1);
    return static_cast<int>(warp * kLanes) + __builtin_ctz(after != 0 ? after : runnable);
  }
  const unsigned count = static_cast<unsigned>(block.warps.size()), place = block.order_of_warp[warp];
  for (unsigned i = 1; i < count; ++i) {
    const unsigned other = block.warp_order[(place + i) % count];
    const unsigned runnable = block.warps[other].runnable;
    if (runnable == 0) continue;
    const unsigned later = runnable & (~0u << block.first_lane);
    return static_cast<int>(other * kLanes) + __builtin_ctz(later != 0 ? later : runnable);
  }
  return -1;
}

void leave(FiberPlace& from) {
  const int next = next_thread();
  if (next < 0) {
    switch_fiber(from, block.scheduler);
    return;
  }
  wake(static_cast<unsigned>(next));
  switch_fiber(from, block.threads[static_cast<unsigned>(next)].place);
}

void wait_at(const char* operation, unsigned mask) {
  Thread& self = block.threads[block.current];
  self.waits_for = operation;
  self.waits_with = mask;
  block.warps[block.current / kLanes].runnable &= ~(1u << (block.current % kLanes));
  leave(self.place);
}

void thread_main() {
  block.call->run_thread();
  Warp& warp = block.warps[block.current / kLanes];
  const unsigned bit = 1u << (block.current % kLanes);
  warp.runnable &= ~bit;
  warp.exited |= bit;
  leave(block.threads[block.current].place);
  __builtin_unreachable();
}

void give_stacks(unsigned count) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (block.threads.size() < count) block.threads.resize(count);
  for (unsigned i = 0; i < count; ++i) {
    Thread& thread = block.threads[i];
    if (thread.stack != nullptr) continue;
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* memory = mmap(nullptr, page + kStackBytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) refuse("no memory for the stacks of a block");
    thread.stack = static_cast<char*>(memory) + page;
  }
}

[[noreturn]] void report_deadlock() {
  unsigned exited = 0, shown = 0;
  for (const Warp& warp : block.warps) exited += static_cast<unsigned>(__builtin_popcount(warp.exited));
  std::fprintf(stderr, "simulated CUDA: %u threads of %u have ended; of the others\n", exited, block.thread_count);
  const char* operation = nullptr;
  unsigned mask = 0;
  for (unsigned i = 0; i < block.thread_count && shown < 8; ++i) {
    const Thread& thread = block.threads[i];
    if ((block.warps[i / kLanes].exited >> (i % kLanes)) & 1u) continue;
    if (thread.waits_for == operation && thread.waits_with == mask) continue;
    operation = thread.waits_for;
    mask = thread.waits_with;
    std::fprintf(stderr, "simulated CUDA:   thread %u (and those after it) waits at %s, mask %08x\n", i, operation, mask);
    threadIdx = thread.index;
    ++shown;
  }
  refuse("threads wait for others that never come");
}

void run_block(std::mt19937_64* random) {
  const unsigned warps = (block.thread_count + kLanes - 1) / kLanes;
  block.warps.resize(warps);
  block.warp_order.resize(warps);
  block.order_of_warp.resize(warps);
  for (unsigned i = 0; i < warps; ++i) {
    const unsigned lanes = std::min(kLanes, block.thread_count - i * kLanes);
    block.warps[i].runnable = lanes == kLanes ? ~0u : (1u << lanes) - 1;
    block.warps[i].exited = 0;
    block.warps[i].meetings.clear();
    block.warp_order[i] = i;
  }
  if (random != nullptr) std::shuffle(block.warp_order.begin(), block.warp_order.end(), *random);
  for (unsigned i = 0; i < warps; ++i) block.order_of_warp[block.warp_order[i]] = i;
  for (unsigned i = 0; i < block.thread_count; ++i) {
    prepare_fiber(block.threads[i].place, block.threads[i].stack, kStackBytes - i % kStackShifts * kStackShift, thread_main);
  }
  block.arrived = 0;
  block.first_lane = random != nullptr ? static_cast<unsigned>((*random)() % kLanes) : 0;
  const unsigned first = block.warp_order[0] * kLanes;
  const unsigned lanes = std::min(kLanes, block.thread_count - first);
  wake(first + block.first_lane % lanes);
  switch_fiber(block.scheduler, block.threads[block.current].place);
  for (const Warp& warp : block.warps) {
    const unsigned index = static_cast<unsigned>(&warp - block.warps.data());
    const unsigned present = std::min(kLanes, block.thread_count - index * kLanes);
    if (warp.exited != (present == kLanes ? ~0u : (1u << present) - 1)) report_deadlock();
  }
}

// The last thread to arrive lets all threads continue; it stores the predicates' result for them.
void meet_block(const char* operation) {
  if (block.arrived == 0) block.barrier = operation;
  if (block.barrier != operation) refuse("threads of a block wait at different kinds of __syncthreads");
  if (++block.arrived < block.thread_count) {
    wait_at(operation, ~0u);
    return;
  }
  block.arrived = 0;
  block.predicate_result = block.predicates;
  block.predicates = 0;
  for (unsigned i = 0; i < block.warps.size(); ++i) {
    const unsigned present = std::min(kLanes, block.thread_count - i * kLanes);
    block.warps[i].runnable = present == kLanes ? ~0u : (1u << present) - 1;
  }
}

}  // namespace

void describe_code(const void* address, char* text, unsigned long size) {
  Dl_info info;
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) {
    std::snprintf(text, size, "%p", address);
    return;
  }
  std::snprintf(text, size, "%s+0x%zx", info.dli_fname,
                static_cast<size_t>(static_cast<const char*>(address) - static_cast<const char*>(info.dli_fbase)));
}

bool describe_running(char* text, unsigned long size) {
  char kernel[512];
  describe_code(block.call == nullptr ? nullptr : block.call->function(), kernel, sizeof kernel);
  std::snprintf(text, size, "kernel %s, block (%u, %u, %u), thread (%u, %u, %u)", kernel, blockIdx.x, blockIdx.y, blockIdx.z,
                threadIdx.x, threadIdx.y, threadIdx.z);
  return block.call != nullptr;
}

void require(bool holds, const char* what) {
  if (!holds) refuse(what);
}

unsigned lane_index() { return block.current % kLanes; }

void meet_warp(unsigned mask, const char* operation, void* argument, FinishWarp finish) {
  Warp& warp = block.warps[block.current / kLanes];
  const unsigned lane = block.current % kLanes;
  const unsigned present = std::min(kLanes, block.thread_count - block.current / kLanes * kLanes);
  if (present < kLanes) mask &= (1u << present) - 1;
  if (((mask >> lane) & 1u) == 0) refuse("a thread calls a warp operation whose mask leaves it out");
  Meeting* meeting = nullptr;
  for (Meeting& other : warp.meetings) {
    if (other.arrived != 0 && other.mask == mask) meeting = &other;
  }
  if (meeting == nullptr) {
    for (Meeting& other : warp.meetings) {
      if (other.arrived == 0) meeting = &other;
    }
    if (meeting == nullptr) meeting = &warp.meetings.emplace_back();
    meeting->mask = mask;
    meeting->operation = operation;
    meeting->finish = finish;
    std::fill(std::begin(meeting->arguments), std::end(meeting->arguments), nullptr);
  }
  if (meeting->operation != operation && std::strcmp(meeting->operation, operation) != 0) {
    std::fprintf(stderr, "simulated CUDA: mask %08x: %s and %s\n", mask, meeting->operation, operation);
    refuse("lanes of a warp meet at different operations");
  }
  meeting->arguments[lane] = argument;
  meeting->arrived |= 1u << lane;
  if (meeting->arrived != mask) {
    wait_at(operation, mask);
    return;
  }
  if (finish != nullptr) finish(meeting->arguments, mask);
  meeting->arrived = 0;
  warp.runnable |= mask;
}

namespace {

void finish_shuffle(void* const lanes[32], unsigned mask) {
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if (((mask >> lane) & 1u) == 0) continue;
    auto* to = static_cast<ShuffleLane*>(lanes[lane]);
    const auto* from = static_cast<const ShuffleLane*>(lanes[to->source]);
    if (from == nullptr) refuse("a shuffle reads from a lane that its mask leaves out");
    to->result = from->value;
  }
}

void finish_ballot(void* const lanes[32], unsigned mask) {
  unsigned votes = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if (((mask >> lane) & 1u) != 0 && static_cast<const ShuffleLane*>(lanes[lane])->value != 0) votes |= 1u << lane;
  }
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if (((mask >> lane) & 1u) != 0) static_cast<ShuffleLane*>(lanes[lane])->result = votes;
  }
}

}  // namespace

uint64_t shuffle(unsigned mask, const char* operation, uint64_t value, int source) {
  ShuffleLane lane{value, 0, source};
  meet_warp(mask, operation, &lane, finish_shuffle);
  return lane.result;
}

void run_kernel(const KernelCall& call, dim3 grid, dim3 shape, uint64_t seed) {
  block.call = &call;
  poison_shared_memory(call.function());
  block.thread_count = shape.x * shape.y * shape.z;
  gridDim = grid;
  blockDim = shape;
  give_stacks(block.thread_count);
  for (unsigned i = 0; i < block.thread_count; ++i) {
    block.threads[i].index = uint3{i % shape.x, i / shape.x % shape.y, i / (shape.x * shape.y)};
  }
  std::mt19937_64 random(seed);
  const uint64_t blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
  const uint64_t first = seed != 0 ? random() % blocks : 0;
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t index = (first + i) % blocks;
    blockIdx = uint3{static_cast<unsigned>(index % grid.x), static_cast<unsigned>(index / grid.x % grid.y),
                     static_cast<unsigned>(index / (static_cast<uint64_t>(grid.x) * grid.y))};
    run_block(seed != 0 ? &random : nullptr);
  }
  block.call = nullptr;
}

}  // namespace odmoe_simulated

using namespace odmoe_simulated;

void __syncthreads() { meet_block("__syncthreads"); }
int __syncthreads_count(int predicate) {
  block.predicates += predicate != 0;
  meet_block("__syncthreads_count");
  return block.predicate_result;
}
int __syncthreads_and(int predicate) {
  block.predicates += predicate != 0;
  meet_block("__syncthreads_and");
  return block.predicate_result == static_cast<int>(block.thread_count);
}
int __syncthreads_or(int predicate) {
  block.predicates += predicate != 0;
  meet_block("__syncthreads_or");
  return block.predicate_result != 0;
}
void __syncwarp(unsigned mask) { meet_warp(mask, "__syncwarp", nullptr, nullptr); }
unsigned __ballot_sync(unsigned mask, int predicate) {
  ShuffleLane lane{predicate != 0 ? 1u : 0u, 0, 0};
  meet_warp(mask, "__ballot_sync", &lane, finish_ballot);
  return static_cast<unsigned>(lane.result);
}
void __trap() { refuse("__trap was called"); }
