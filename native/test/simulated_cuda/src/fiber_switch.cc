#include "fiber_switch.h"

#include <cstdint>
#include <cstring>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace odmoe_simulated {

#if defined(__x86_64__)

// Saves only the registers that a function must preserve for its caller: rbx, rbp, r12 to r15 and the stack pointer.
extern "C" void odmoe_simulated_switch(void** from, void* to);
asm(R"(
.text
.hidden odmoe_simulated_switch
.globl odmoe_simulated_switch
.type odmoe_simulated_switch, @function
odmoe_simulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size odmoe_simulated_switch, .-odmoe_simulated_switch
)");

void prepare_fiber(FiberPlace& place, void* base, size_t size, void (*entry)()) {
  auto* top = reinterpret_cast<void**>(static_cast<char*>(base) + size);
  *--top = nullptr;  // where the entry would return to; also makes the stack as a call leaves it
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  place.stack_pointer = top;
}

void switch_fiber(FiberPlace& from, FiberPlace& to) { odmoe_simulated_switch(&from.stack_pointer, to.stack_pointer); }

#elif defined(__aarch64__)

// Saves x19 to x30 and d8 to d15, as the procedure call standard requires.
extern "C" void odmoe_simulated_switch(void** from, void* to);
asm(R"(
.text
.hidden odmoe_simulated_switch
.globl odmoe_simulated_switch
.type odmoe_simulated_switch, %function
odmoe_simulated_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size odmoe_simulated_switch, .-odmoe_simulated_switch
)");

void prepare_fiber(FiberPlace& place, void* base, size_t size, void (*entry)()) {
  char* top = static_cast<char*>(base) + size - 160;
  std::memset(top, 0, 160);
  std::memcpy(top + 88, &entry, sizeof entry);  // x30: where the switch returns to
  place.stack_pointer = top;
}

void switch_fiber(FiberPlace& from, FiberPlace& to) { odmoe_simulated_switch(&from.stack_pointer, to.stack_pointer); }

#else

void prepare_fiber(FiberPlace& place, void* base, size_t size, void (*entry)()) {
  if (place.stack_pointer == nullptr) place.stack_pointer = new ucontext_t;
  auto* context = static_cast<ucontext_t*>(place.stack_pointer);
  getcontext(context);
  context->uc_stack.ss_sp = base;
  context->uc_stack.ss_size = size;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
}

void switch_fiber(FiberPlace& from, FiberPlace& to) {
  if (from.stack_pointer == nullptr) from.stack_pointer = new ucontext_t;
  swapcontext(static_cast<ucontext_t*>(from.stack_pointer), static_cast<ucontext_t*>(to.stack_pointer));
}

#endif

}  // namespace odmoe_simulated
