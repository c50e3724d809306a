#include "faults.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "block_execution.h"

namespace odmoe_simulated {
namespace {

constexpr size_t kSignalStackBytes = 64 << 10;
// A check of the compiler that fails is SIGILL on x86 and SIGTRAP on Arm.
constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};
constexpr int kProtectionKeyFault = 4;  // SEGV_PKUERR

struct sigaction previous[NSIG];
thread_local bool is_device = false;

// -1 where the processor or the system has no protection keys.
int protection_key() {
  static const int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  return key;
}

void report(int signal, siginfo_t* info, void*) {
  char text[900];
  int length = 0;
  char running[600];
  if (is_device) {
    const bool kernel = describe_running(running, sizeof running);
    length = std::snprintf(text, sizeof text, "simulated CUDA: signal %d at address %p: %s%s\n", signal, info->si_addr,
                           kernel ? running : "an operation of a stream (copy or memset)",
                           signal == SIGILL || signal == SIGTRAP ? " (a misaligned access, or an index outside an array)" : "");
  } else if (signal == SIGSEGV && info->si_code == kProtectionKeyFault) {
    length = std::snprintf(text, sizeof text, "simulated CUDA: host code touches device memory at address %p\n", info->si_addr);
  }
  if (length > 0 && write(STDERR_FILENO, text, static_cast<size_t>(length)) < 0) _exit(1);
  sigaction(signal, &previous[signal], nullptr);  // the instruction faults again, now as without us
}

}  // namespace

bool protect_device_memory(void* start, size_t size, int protection) {
  if (protection_key() < 0 || protection == PROT_NONE) return mprotect(start, size, protection) == 0;
  return pkey_mprotect(start, size, protection, protection_key()) == 0;
}

void open_device_memory() {
  if (protection_key() >= 0) pkey_set(protection_key(), 0);
}

void report_faults_of_this_thread() {
  is_device = true;
  stack_t stack = {};
  stack.ss_sp = mmap(nullptr, kSignalStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack.ss_size = kSignalStackBytes;
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = report;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : kSignals) sigaction(signal, &action, &previous[signal]);
}

}  // namespace odmoe_simulated
