// Which kernels this build has and this processor can run.
#include "kernel_table.h"

namespace odmoe::cpu {

const KernelTable* const* usable_kernels() {
  struct List {
    const KernelTable* tables[4] = {};
    int count = 0;
    void add(const KernelTable& table) { tables[count++] = &table; }
  };
  static const List list = [] {
    List found;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
      found.add(kAvx512Kernels);
    }
    if (avx2) found.add(kAvx2Kernels);
#elif defined(__aarch64__)
    found.add(kNeonKernels);
#endif
    found.add(kScalarKernels);
    return found;
  }();
  return list.tables;
}

}  // namespace odmoe::cpu
