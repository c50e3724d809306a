// Finds the kernels that this build has and this processor can run.
#include <cstdlib>
#include <string>

#include "kernel_table.h"
#include "odmoe/error.h"

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
#if !defined(ODMOE_WITHOUT_AVX512)
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
      found.add(avx512::kKernels);
    }
#endif
    if (avx2) found.add(avx2::kKernels);
#elif defined(__aarch64__)
    found.add(neon::kKernels);
#endif
    found.add(scalar::kKernels);
    return found;
  }();
  return list.tables;
}

const KernelTable& choose_kernels(const std::string& option) {
  const char* environment = std::getenv("ODMOE_INSTRUCTION_SET");
  const bool forced = option == "auto" && environment != nullptr && *environment != '\0';
  const std::string wanted = forced ? environment : option;
  const KernelTable* const* tables = usable_kernels();
  std::string usable;
  for (; *tables != nullptr; ++tables) {
    if (wanted == "auto" || wanted == (*tables)->instruction_set) return **tables;
    usable += usable.empty() ? "" : ", ";
    usable += (*tables)->instruction_set;
  }
  throw Error(ErrorCode::device_unavailable, "the instruction set '" + wanted + "'" +
                                                 (forced ? " (from ODMOE_INSTRUCTION_SET)" : "") +
                                                 " cannot be used on this processor; choose auto or one of: " + usable);
}

}  // namespace odmoe::cpu
