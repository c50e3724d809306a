// Finds the kernels that this build has and this processor can run. (Backends choose theirs separately: nothing here depends on a
// backend.)
#include "plane_kernels.h"

#include <cstdlib>
#include <cstring>

namespace odmoe {
namespace {

struct List {
  const PlaneKernels* tables[4] = {};
  int count = 0;
  void add(const PlaneKernels& table) { tables[count++] = &table; }
};

List find_usable() {
  List found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) found.add(kAvx512PlaneKernels);
  if (avx2) found.add(kAvx2PlaneKernels);
#elif defined(__aarch64__)
  found.add(kNeonPlaneKernels);
#endif
  found.add(kScalarPlaneKernels);
  return found;
}

const PlaneKernels& choose() {
  const PlaneKernels* const* usable = usable_plane_kernels();
  const char* const wanted = std::getenv("ODMOE_INSTRUCTION_SET");
  for (int i = 0; wanted != nullptr && usable[i] != nullptr; i++) {
    if (std::strcmp(usable[i]->name, wanted) == 0) return *usable[i];
  }
  return *usable[0];
}

}  // namespace

const PlaneKernels* const* usable_plane_kernels() {
  static const List list = find_usable();
  return list.tables;
}

const PlaneKernels& plane_kernels() {
  static const PlaneKernels& chosen = choose();
  return chosen;
}

}  // namespace odmoe
