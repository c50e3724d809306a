// Tests of the simulated device itself: every case in a separate process. Exits 0 when all hold, 1 otherwise.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cases.h"

void Checks::operator()(bool holds, const char* what) {
  if (holds) return;
  ++failures_;
  std::printf("  does not hold: %s\n", what);
}

namespace {

// The signal of a failed check of the compiler (__builtin_trap).
#ifdef __aarch64__
constexpr int kTrap = SIGTRAP;
#else
constexpr int kTrap = SIGILL;
#endif
// The exit status of execl's child when there is no program to run.
constexpr int kNotStarted = 127;

// A case must hold under one seed, hold under all, fail under at least one, or hold under some and fail under others.
enum class Seeds { kOne, kAll, kSome, kMixed };

struct Entry {
  const char* name;
  Case run;
  const char* says;                   // what the test shows
  std::vector<std::string> settings;  // variables of the environment
  int signal = 0;                     // the signal that ends the process, 0: none
  const char* message = nullptr;      // part of its message
  Seeds seeds = Seeds::kOne;
  bool (*possible)() = nullptr;  // null: on every machine
};

// Not every processor and system has protection keys.
bool has_protection_keys() {
  const int key = pkey_alloc(0, 0);
  if (key >= 0) pkey_free(key);
  return key >= 0;
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {"warp_operations", warp_operations, "shuffles, ballots and votes", {}},
      {"indices", indices_of_threads, "indices of threads and blocks in three dimensions", {}},
      {"block_sums", block_sums, "a sum over a block, by shuffles and shared memory", {}, 0, nullptr, Seeds::kAll},
      {"racing_block_sums", racing_block_sums, "a missing __syncthreads is found", {}, 0, nullptr, Seeds::kSome},
      {"tile_product", tile_product, "a product of tiles by the whole warp", {}},
      {"tickets", tickets, "atomic additions", {}},
      {"integer_functions", integer_functions, "byte permutation, shifts, counts of bits", {}},
      {"bfloat16_rounding", bfloat16_rounding, "rounding to bfloat16", {}},
      {"unset_shared", unset_shared, "shared memory that was not written is not a number", {}},
      {"missing_thread", missing_thread, "a thread that ended before __syncthreads", {}, SIGABRT, "__syncthreads"},
      {"missing_lane", missing_lane, "a lane that ended before a shuffle", {}, SIGABRT, "__shfl_down_sync"},
      {"mixed_operations", mixed_operations, "lanes at different operations", {}, SIGABRT, "different operations"},
      {"misaligned", misaligned, "a misaligned load", {}, kTrap, "misaligned"},
      {"deep_stack", deep_stack, "a deep stack", {}},
      {"too_deep_stack", too_deep_stack, "a stack that overflows", {}, SIGSEGV, "kernel"},
      {"ordered_streams", ordered_streams, "two streams ordered by events", {}, 0, nullptr, Seeds::kAll},
      {"missing_event", missing_event, "a missing event between streams is found", {}, 0, nullptr, Seeds::kSome},
      {"missing_event", missing_event, "in the order of issue it is not", {"ODMOE_SIMULATED_CUDA_ORDER=issue"}},
      {"pinned_reused_early", pinned_reused_early, "pinned memory used again too early is found", {}, 0, nullptr, Seeds::kSome},
      {"pinned_reused_after_event",
       pinned_reused_after_event,
       "pinned memory used again after an event",
       {},
       0,
       nullptr,
       Seeds::kAll},
      {"pinned_rows_reused_early",
       pinned_rows_reused_early,
       "rows in pinned memory used again too early are found",
       {},
       0,
       nullptr,
       Seeds::kSome},
      {"pinned_rows_reused_after_event",
       pinned_rows_reused_after_event,
       "rows in pinned memory used again after an event",
       {},
       0,
       nullptr,
       Seeds::kAll},
      {"pageable_reused_early", pageable_reused_early, "pageable memory may be used again at once", {}, 0, nullptr, Seeds::kAll},
      {"memset_beside_stream", memset_beside_stream, "cudaMemset does not wait for other streams", {}, 0, nullptr, Seeds::kSome},
      {"default_stream", default_stream, "the default stream is refused", {}, SIGABRT, "default stream"},
      {"past_the_end", past_the_end, "a kernel past the end of its memory", {}, SIGSEGV, "kernel"},
      {"host_touches_device",
       host_touches_device,
       "host code at a device address",
       {},
       SIGSEGV,
       "host code touches",
       Seeds::kOne,
       has_protection_keys},
      {"use_after_free", use_after_free, "a kernel given freed memory", {}, SIGABRT, "no device memory"},
      {"freed_in_flight",
       freed_in_flight,
       "memory freed while kernels are due is found: cudaFree waits or does not",
       {},
       SIGSEGV,
       "kernel",
       Seeds::kMixed},
      {"freed_in_flight", freed_in_flight, "in the order of issue it waits", {"ODMOE_SIMULATED_CUDA_ORDER=issue"}},
      {"pinned_freed_in_flight",
       pinned_freed_in_flight,
       "and so pinned memory freed while it is copied",
       {},
       SIGSEGV,
       "an operation of a stream",
       Seeds::kMixed},
      {"host_pointer", host_pointer, "a kernel given the host's memory", {}, SIGABRT, "no device memory"},
      {"registered", registered, "host memory registered for the device", {}},
      {"accounting", accounting, "memory is counted, with the context", {}},
      {"copies", copies, "copies are checked and done", {}},
      {"copies_of_rows", copies_of_rows, "copies of rows that stand apart are checked and done", {}},
      {"events", events, "events: queries, times, handles", {}},
      {"mapping", mapping, "memory mapped under reserved addresses", {}},
      {"mapping_refusals", mapping_refusals, "wrong mappings are refused", {}},
      {"mapping_fails", mapping_fails, "a mapping that is to fail does, once", {}},
      {"calls_are_counted", calls_are_counted, "a thread's calls are counted", {}},
      {"unmapped_touched", unmapped_touched, "a kernel at an address that is not mapped", {}, SIGSEGV, "kernel"},
      {"unmapped_between", unmapped_between, "memory unmapped while a kernel is due", {}, SIGSEGV, "kernel"},
      {"no_device", no_device, "no device", {"ODMOE_SIMULATED_CUDA_DEVICES=0"}},
      {"old_driver", old_driver, "too old a driver", {"ODMOE_SIMULATED_CUDA_DRIVER_VERSION=11040"}},
      {"device_kind",
       device_kind,
       "an integrated device without mapped memory",
       {"ODMOE_SIMULATED_CUDA_INTEGRATED=1", "ODMOE_SIMULATED_CUDA_VMM=0", "ODMOE_SIMULATED_CUDA_CAPABILITY=8.7"}},
      {"lost_device", lost_device, "a device lost after two kernels", {"ODMOE_SIMULATED_CUDA_FAULT=lost:2"}},
      {"gone_device", gone_device, "a device gone at the first kernel", {"ODMOE_SIMULATED_CUDA_FAULT=gone:0"}},
      {"no_image", no_image, "no kernel image", {"ODMOE_SIMULATED_CUDA_FAULT=no-image"}},
      {"out_of_memory", out_of_memory, "the second allocation fails", {"ODMOE_SIMULATED_CUDA_FAULT=out-of-memory:2"}},
      {"management_library", management_library, "the process's memory as the management library tells it", {}},
  };
  return all;
}

// Runs a case in a new process under a seed. What it wrote goes to `output`.
int run_in_process(const Entry& entry, int seed, std::string& output) {
  int ends[2];
  constexpr int kNoProcess = kNotStarted << 8;  // as waitpid tells that exit status
  if (pipe(ends) != 0) return kNoProcess;
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    return kNoProcess;
  }
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    setenv("ODMOE_SIMULATED_CUDA_SEED", std::to_string(seed).c_str(), 1);
    setenv("ASAN_OPTIONS", "handle_segv=0:handle_sigill=0:handle_abort=0", 1);
    setenv("UBSAN_OPTIONS", "halt_on_error=1", 1);
    for (std::string setting : entry.settings) putenv(strdup(setting.c_str()));
    execl("/proc/self/exe", "odmoe_simulated_cuda_tests", entry.name, static_cast<char*>(nullptr));
    _exit(kNotStarted);
  }
  close(ends[1]);
  char piece[4096];
  for (ssize_t got; (got = read(ends[0], piece, sizeof piece)) > 0;) output.append(piece, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// True if the case itself ran: it ended without or with failed checks (0, 1), or by a signal.
bool was_run(int status) { return WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) <= 1); }

bool as_expected(const Entry& entry, int status, const std::string& output) {
  if (entry.signal == 0) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
#ifdef __SANITIZE_ADDRESS__
  // The sanitizer ends the process by itself where a trap would.
  if (entry.signal == kTrap) return WIFEXITED(status) && output.find("misaligned") != std::string::npos;
#endif
  return WIFSIGNALED(status) && WTERMSIG(status) == entry.signal && output.find(entry.message) != std::string::npos;
}

bool holds(const Entry& entry) {
  constexpr int kSeeds = 20;
  if (entry.possible != nullptr && !entry.possible()) {
    std::printf("skip %s: this machine cannot show it\n", entry.says);
    return true;
  }
  std::string output;
  int held = 0;
  const int runs = entry.seeds == Seeds::kOne ? 1 : kSeeds;
  for (int seed = 1; seed <= runs; ++seed) {
    std::string said;
    const int status = run_in_process(entry, seed, said);
    if (as_expected(entry, status, said)) ++held;
    else output = said + "(status " + std::to_string(status) + ", seed " + std::to_string(seed) + ")\n";
    // Such an end is not a mistake that an order of the device has shown.
    if (!was_run(status) || (WIFSIGNALED(status) && entry.signal == 0)) held = -runs;
  }
  const bool some_differ = entry.seeds == Seeds::kSome || entry.seeds == Seeds::kMixed;
  const int least = entry.seeds == Seeds::kMixed ? 1 : 0;
  const bool good = some_differ ? held >= least && held < runs : held == runs;
  std::printf("%s %s\n", good ? "ok  " : "FAIL", entry.says);
  if (some_differ) std::printf("       wrong under %d of %d seeds\n", entry.signal == 0 ? runs - held : held, runs);
  if (!good) std::printf("%s", output.c_str());
  std::fflush(stdout);
  return good;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 2) {
    for (const Entry& entry : entries()) {
      if (std::strcmp(entry.name, arguments[1]) == 0) return entry.run() == 0 ? 0 : 1;
    }
    std::printf("no case is called %s\n", arguments[1]);
    return 2;
  }
  const char* const settings[] = {"ORDER",      "FAULT",      "DEVICES", "MEMORY_BYTES",  "CONTEXT_BYTES",
                                  "CAPABILITY", "INTEGRATED", "VMM",     "DRIVER_VERSION"};
  for (const char* name : settings) {
    unsetenv((std::string("ODMOE_SIMULATED_CUDA_") + name).c_str());
  }
  int failures = 0;
  for (const Entry& entry : entries()) failures += holds(entry) ? 0 : 1;
  std::printf("simulated CUDA: %zu cases, %d failed\n", entries().size(), failures);
  return failures == 0 ? 0 : 1;
}
