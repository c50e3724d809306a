#include "native_tests.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace {

const char kUsage[] =
    "usage: odmoe_native_tests [--list | --bench [INSTRUCTION_SET [THREADS]] | --bench-load | NAME_PART]\n"
    "Runs the cases whose names contain NAME_PART (all without one), one line each: pass NAME, or fail NAME: why.\n";

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
// True if the processor takes the upper halves of wide registers for used.
bool tells_use() {
  constexpr unsigned kUpperHalves = 1u << 2 | 1u << 6;
  unsigned in_use = 0;
  unsigned rest = 0;
  asm volatile("xgetbv" : "=a"(in_use), "=d"(rest) : "c"(1));
  return (in_use & kUpperHalves) != 0;
}
#endif

// True if a kernel has left the upper halves of wide registers in use, which slows all code that is compiled without options. Some processors
// do not say so, or do not take it back when their use ends. What sanitizers add to a kernel uses them, too.
bool upper_halves_in_use() {
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
  constexpr unsigned kStateLeaf = 0xd;
  constexpr unsigned kTellsUse = 1u << 2;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(kStateLeaf, 1, &eax, &ebx, &ecx, &edx) == 0 || (eax & kTellsUse) == 0 || !tells_use()) return false;
  asm volatile("vzeroupper" ::: "memory");
  return !tells_use();
#else
  return false;
#endif
}

// Ends the use of wide registers, so that a case is not slowed by those before it: kernels with sanitizers leave them in use.
void leave_wide_registers() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx")) asm volatile("vzeroupper" ::: "memory");
#endif
}

int run_cases(const std::vector<odmoe::test::Case>& cases, const std::string& part) {
  int failed = 0;
  for (const odmoe::test::Case& test : cases) {
    if (test.name.find(part) == std::string::npos) continue;
    std::string why;
    try {
      test.run();
      if (upper_halves_in_use()) throw std::runtime_error("the upper halves of wide registers are still in use");
    } catch (const std::exception& error) {
      why = error.what();
      ++failed;
    }
    leave_wide_registers();
    std::printf("%s %s%s%s\n", why.empty() ? "pass" : "fail", test.name.c_str(), why.empty() ? "" : ": ", why.c_str());
    std::fflush(stdout);
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<odmoe::test::Case> cases;
  odmoe::test::add_arena_cases(cases);
  odmoe::test::add_thread_pool_cases(cases);
  odmoe::test::add_device_cases(cases);
  odmoe::test::add_device_code_cases(cases);
  odmoe::test::add_device_decoding_cases(cases);
  odmoe::test::add_codec_cases(cases);
  odmoe::test::add_codec_kernel_cases(cases);
  odmoe::test::add_codec_damage_cases(cases);
  odmoe::test::add_codec_block_cases(cases);
  odmoe::test::add_plane_cases(cases);
  odmoe::test::add_tensor_view_cases(cases);
  odmoe::test::add_weight_cases(cases);
  odmoe::test::add_fixed4_cases(cases);
  odmoe::test::add_quantized_weight_cases(cases);
  odmoe::test::add_sliced_weight_cases(cases);
  odmoe::test::add_block_weight_cases(cases);
  odmoe::test::add_matmul_cases(cases);
  odmoe::test::add_elementwise_cases(cases);
  odmoe::test::add_norm_cases(cases);
  odmoe::test::add_router_cases(cases);
  odmoe::test::add_recurrence_cases(cases);
  odmoe::test::add_residual_streams_cases(cases);
  odmoe::test::add_answer_math_cases(cases);
  odmoe::test::add_finite_values_cases(cases);
  odmoe::test::add_expert_maps_cases(cases);
  odmoe::test::add_service_notice_cases(cases);
  odmoe::test::add_attention_cases(cases);
  odmoe::test::add_pools_cases(cases);
  odmoe::test::add_products_glu_cases(cases);
  odmoe::test::add_key_value_cases(cases);
  odmoe::test::add_load_schedule_cases(cases);
  odmoe::test::add_expert_loader_cases(cases);
  odmoe::test::add_expert_slices_cases(cases);
  odmoe::test::add_expert_packing_cases(cases);
  odmoe::test::add_expert_loader_fault_cases(cases);
  odmoe::test::add_storage_read_cases(cases);
  odmoe::test::add_host_chunks_cases(cases);
  odmoe::test::add_timer_queue_cases(cases);
  odmoe::test::add_cuda_layout_cases(cases);
  odmoe::test::add_cuda_host_cases(cases);
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--list") {
    for (const odmoe::test::Case& test : cases) std::printf("%s\n", test.name.c_str());
    return 0;
  }
  if (first == "--bench-load") {
    odmoe::test::run_load_benchmark();
    return 0;
  }
  if (first == "--bench") {
    odmoe::test::run_benchmark(argc > 2 ? argv[2] : "auto", argc > 3 ? std::atoi(argv[3]) : 0);
    return 0;
  }
  if (first.rfind("--", 0) == 0) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  return run_cases(cases, first);
}
